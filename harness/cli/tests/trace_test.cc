// libnccl-profiler-plugfest.so judged as a profiler plugin, --trace of plugfest nccl, and plugfest trace.
#include <algorithm>
#include <fstream>
#include <string>

#include "harness/cli/tests/program.h"
#include "harness/plugin/nccl.h"

namespace plugfest::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class RecorderRules : public testing::TestWithParam<const char*> {};

TEST_P(RecorderRules, AllPass) {
  const ScratchFolder folder;
  const std::string output = output_of(run_shell(
      "PLUGFEST_TRACE_FOLDER=" + folder.path().string() +
      " exec " PLUGFEST_PROGRAM " run --interface profiler --plugin " PLUGFEST_RECORDER " --api " + GetParam()));
  EXPECT_THAT(output, AllOf(ContainsRegex("Plugfest profiler v[4-6]: [0-9]+ pass"), testing::Not(HasSubstr("skip")),
                            testing::Not(HasSubstr("warn"))));
}
INSTANTIATE_TEST_SUITE_P(Versions, RecorderRules, testing::Values("v4", "v5", "v6"),
                         [](const auto& version) { return std::string(version.param); });

TEST(Trace, RefusesFilesThatItCannotReadOrWrite) {
  const ScratchFolder folder;
  const std::string text = (folder / "text").string();
  std::ofstream(text) << "text\n";
  EXPECT_EQ(error_of("trace explain /missing"), "plugfest: /missing: cannot read: No such file or directory\n");
  EXPECT_EQ(error_of("trace explain " + text),
            "plugfest: " + text +
                ": no transfers of NCCL in it: name a file of --trace or of trace merge, or the recordings of all "
                "ranks\n");
  EXPECT_EQ(error_of("trace merge " + text + " -o " + text + ".json"),
            "plugfest: " + text + ": not a file of libnccl-profiler-plugfest.so\n");
  EXPECT_EQ(error_of("trace merge " + text + " -o /missing/t.json"),
            "plugfest: /missing/t.json: cannot write: No such file or directory\n");
  EXPECT_EQ(error_of("nccl allreduce --trace /missing/t.json"),
            "plugfest: /missing/t.json: cannot write: No such file or directory\n");
  EXPECT_EQ(error_of("nccl allreduce --profiler /missing.so"),
            "plugfest: --profiler /missing.so: no such file: name the library of a profiler plugin\n");
  EXPECT_EQ(error_of("nccl allreduce --packets"), "plugfest: --packets: needs --trace FILE, which gets them\n");
}

class TraceOfNccl : public RunTest {
 protected:
  void SetUp() override {
    if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2: run\n    " << plugin::kFetchNccl;
  }
};

TEST_F(TraceOfNccl, HasEveryTransferOfEachRankAndAnArrowToItsReceive) {
  ASSERT_EQ(plugfest("nccl allreduce -b 1M -e 1M -n 1 --trace t.json"), 0) << output();
  const json document = json::parse(content_of(folder_ / "t.json"));
  std::map<std::string, int> count;
  std::set<std::string> processes;
  for (const json& event : document.at("traceEvents")) {
    const std::string name = event.at("name"), phase = event.at("ph");
    if (name == "process_name") processes.insert(event.at("args").at("name").get<std::string>());
    if (phase != "X") ++count[phase];
    if (phase == "X") ++count[name.substr(0, name.find(' '))];
  }
  EXPECT_EQ(processes, (std::set<std::string>{"rank 0 on a", "rank 1 on b", "rank 2 on c"}));
  EXPECT_GT(count["send"], 0);
  EXPECT_EQ(count["send"], count["receive"]);
  EXPECT_EQ(count["s"], count["send"]) << "each send has an arrow";
  EXPECT_EQ(count["f"], count["receive"]);
  EXPECT_EQ(count["AllReduce"] % 3, 0);
  EXPECT_GT(count["kernel"], 0);
  EXPECT_GT(count["work"], 0) << "the mesh plugin reports the work of its queue pairs";
  ASSERT_EQ(plugfest("trace explain t.json"), 0) << output();
  EXPECT_THAT(output(), AllOf(HasSubstr("AllReduce, 1048576 bytes, RING "), HasSubstr("\nrank 0 on a "),
                              HasSubstr("\nrank 2 on c "), HasSubstr("rank 0 on a to rank 1 on b ")));
}

TEST_F(TraceOfNccl, LeadsFromTheWorkOfANicToItsPackets) {
  ASSERT_EQ(plugfest("nccl allreduce -t pair -b 1M -e 1M --trace t.json --packets"), 0) << output();
  std::map<std::string, int> processes;
  int messages = 0, arrows = 0;
  const json document = json::parse(content_of(folder_ / "t.json"));
  for (const json& event : document.at("traceEvents")) {
    const std::string name = event.at("name"), phase = event.at("ph");
    if (name == "process_name") ++processes[event.at("args").at("name").get<std::string>()];
    if (phase == "X" && name.starts_with("WRITE ")) {
      ++messages;
      EXPECT_GE(event.at("dur"), 0.0);
    }
    if (phase == "f" && event.at("id") >= std::int64_t{1} << 40) ++arrows;
  }
  EXPECT_EQ(processes["packets of a"], 1);
  EXPECT_EQ(processes["packets of b"], 1);
  EXPECT_GT(messages, 0);
  EXPECT_GE(arrows * 10, messages * 9) << "only packets of the last 0.1 s may be missing";
}

TEST_F(TraceOfNccl, IsLeftToAnotherProfilerThatTheUserNames) {
  const std::string toys = std::filesystem::path(PLUGFEST_RECORDER).parent_path().string() + "/mutants/lib";
  const std::string command = "nccl allreduce -t pair -b 8 -e 8 -n 1 --profiler ";
  EXPECT_EQ(plugfest(command + toys + "profiler-toy.so"), 0) << output();
  EXPECT_EQ(plugfest(command + toys + "tuner-toy.so"), 1) << output();
  EXPECT_THAT(output(), HasSubstr("tuner-toy.so: NCCL continues without the profiler: rank 0: it exports no version "
                                  "that NCCL loads; --logs FOLDER keeps NCCL's logs\n"));
}

TEST_F(TraceOfNccl, ShowsTheSlowLink) {
  std::ofstream(folder_ / "slow.yaml") << "hosts: [a, b, c]\n"
                                          "links:\n"
                                          "  - {ends: [a, b]}\n"
                                          "  - {ends: [b, c], delay: 100ms}\n"
                                          "  - {ends: [a, c]}\n";
  ASSERT_EQ(plugfest("nccl allreduce -t slow.yaml --algo ring -b 64K -e 64K -w 0 -n 1 --trace t.json"), 0) << output();
  ASSERT_EQ(plugfest("trace explain t.json"), 0) << output();
  EXPECT_THAT(output(), ContainsRegex("slowest link: rank (1 on b to rank 2 on c|2 on c to rank 1 on b): a message "
                                      "takes [0-9.]+ times as long as on the others\n"));
}

TEST_F(TraceOfNccl, JoinsTheRecordingsOfRanksThatTheUserStarted) {
  ASSERT_EQ(run_shell("mkdir recordings && NCCL_PROFILER_PLUGIN=" PLUGFEST_RECORDER
                      " PLUGFEST_TRACE_FOLDER=$PWD/recordings exec " PLUGFEST_PROGRAM
                      " nccl sendrecv -t pair -b 64K -e 64K -n 1 >output 2>&1",
                      [&] { std::filesystem::current_path(folder_.path()); })
                .exit_code,
            0)
      << output();
  ASSERT_EQ(plugfest("trace merge recordings/*.recording -o t.json"), 0) << output();
  ASSERT_EQ(plugfest("trace explain t.json"), 0) << output();
  const std::string explained = output();
  EXPECT_THAT(explained, AllOf(HasSubstr("Send and Recv"), HasSubstr("rank 0 on a to rank 1 on b ")));
  ASSERT_EQ(plugfest("trace explain recordings/*.recording"), 0) << output();
  EXPECT_EQ(output(), explained);
}

}  // namespace
}  // namespace plugfest::cli
