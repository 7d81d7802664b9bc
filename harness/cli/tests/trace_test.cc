// libnccl-profiler-plugfest.so tested as a profiler plugin, --trace of plugfest nccl, and plugfest trace.
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
  EXPECT_THAT(output, AllOf(ContainsRegex("Plugfest profiler v[1-6]: [0-9]+ pass"), testing::Not(HasSubstr("skip")),
                            testing::Not(HasSubstr("warn"))));
}
INSTANTIATE_TEST_SUITE_P(Versions, RecorderRules, testing::Values("v1", "v2", "v3", "v4", "v5", "v6"),
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

// How much of a timeline belongs together. Sets have the numbers of transfers.
struct Parts {
  std::set<int> sends, receives;
  std::set<int> with_call, with_work, with_packets;
  std::set<std::string> processes;
  std::size_t writes = 0, orphans = 0;  ///< WRITE messages, and those without a transfer
  std::uint64_t sent_bytes = 0, written_bytes = 0;

  explicit Parts(const json& document) {
    for (const json& event : document.at("traceEvents")) {
      const std::string name = event.at("name");
      if (name == "process_name") processes.insert(event.at("args").at("name").get<std::string>());
      if (event.at("ph") == "X") add(name, event);
    }
  }

 private:
  void add(const std::string& name, const json& event) {
    const int transfer = event.at("args").value("transfer", -1);
    if (name.starts_with("send ")) {
      sends.insert(transfer);
      sent_bytes += event.at("args").at("bytes").get<std::uint64_t>();
    }
    if (name.starts_with("receive ")) receives.insert(transfer);
    if (name == "isend" || name == "irecv") with_call.insert(transfer);
    if (name == "work of the NIC") with_work.insert(transfer);
    if (!name.starts_with("WRITE ")) return;
    ++writes;
    orphans += transfer < 0 ? 1 : 0;
    with_packets.insert(transfer);
    written_bytes += std::stoull(name.substr(6));
  }
};

void expect_no_orphan(const json& document) {
  const Parts parts(document);
  EXPECT_THAT(parts.processes, testing::IsSupersetOf({"packets of a", "packets of b", "packets of c"}));
  EXPECT_FALSE(parts.sends.empty());
  EXPECT_EQ(parts.sends.size(), parts.receives.size());
  std::set<int> all = parts.sends;
  all.insert(parts.receives.begin(), parts.receives.end());
  EXPECT_EQ(parts.with_call, all) << "each step has its isend or irecv";
  EXPECT_EQ(parts.with_work, all) << "each step has the work of its isend or irecv";
  EXPECT_EQ(parts.orphans, 0u) << "of " << parts.writes << " messages";
  EXPECT_EQ(parts.with_packets, parts.sends) << "each send has its packets";
  EXPECT_EQ(parts.written_bytes, parts.sent_bytes);
}

TEST_F(TraceOfNccl, HasTheCallsAndTheWorkOfEachStepAndTheRequestOfEachDataPacket) {
  const std::string size = runs_long_tests() ? "64M" : "1M";
  ASSERT_EQ(plugfest("nccl allreduce -w 0 -n 1 --trace t.json --packets -b " + size + " -e " + size), 0) << output();
  expect_no_orphan(json::parse(content_of(folder_ / "t.json")));
}

TEST_F(TraceOfNccl, IsLeftToAnotherProfilerThatTheUserNames) {
  const std::string toys = std::filesystem::path(PLUGFEST_RECORDER).parent_path().string() + "/mutants/lib";
  const std::string command = "nccl allreduce -t pair -b 8 -e 8 -n 1 --profiler ";
  EXPECT_EQ(plugfest(command + toys + "profiler-toy.so"), 0) << output();
  EXPECT_THAT(output(), ContainsRegex("# profiler: [1-9][0-9]* calls, [0-9.]+ us each\n"));
  EXPECT_EQ(plugfest(command + toys + "tuner-toy.so"), 1) << output();
  EXPECT_THAT(output(), HasSubstr("tuner-toy.so: NCCL continues without the profiler: rank 0: it exports no version "
                                  "that NCCL loads; --logs FOLDER keeps NCCL's logs\n"));
}

// A profiler whose startEvent fails.
constexpr const char* kFailingProfiler = R"(
static int init(void** context, unsigned long id, int* mask, const char* name, int nodes, int ranks, int rank, void* log) {
  *mask = 0xfff;
  *context = mask;
  return 0;
}
static int start(void* context, void** event, void* descriptor) { *event = 0; return 3; }
static int stop(void* event) { return 0; }
static int state(void* event, int state, void* arguments) { return 0; }
struct { const char* name; void *init, *start, *stop, *state, *finalize; } ncclProfiler_v5 = {
  "Failing", init, start, stop, state, stop};
)";

TEST_F(TraceOfNccl, NamesTheProfilerCallsThatFail) {
  std::ofstream(folder_ / "profiler.c") << kFailingProfiler;
  const Finished built = run_shell("exec cc -w -shared -fPIC profiler.c -o profiler.so",
                                   [&] { std::filesystem::current_path(folder_.path()); });
  ASSERT_EQ(built.exit_code, 0) << built.output;
  EXPECT_EQ(plugfest("nccl allreduce -t pair -b 8 -e 8 -n 1 --profiler ./profiler.so"), 1) << output();
  EXPECT_THAT(output(), ContainsRegex("plugfest: --profiler ./profiler.so: rank 0: startEvent returned 3, and [0-9]+ "
                                      "of [0-9]+ calls failed; NCCL ignores these results\n"));
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

TEST_F(TraceOfNccl, ShowsTheSlowLinkOfEightHosts) {
  std::ofstream topology(folder_ / "slow.yaml");
  topology << "hosts: [a, b, c, d, e, f, g, h]\nswitches: [{name: s, subnet: 10.1.0.0/24}]\nlinks:\n";
  for (const char host : std::string("abcdefgh"))
    topology << "  - {ends: [" << host << ", s]" << (host == 'e' ? ", delay: 100ms}" : "}") << '\n';
  topology.close();
  ASSERT_EQ(plugfest("nccl allreduce -t slow.yaml --algo ring -b 64K -e 64K -w 0 -n 1 --trace t.json"), 0) << output();
  ASSERT_EQ(plugfest("trace explain t.json"), 0) << output();
  EXPECT_THAT(output(), ContainsRegex("slowest link: rank (3 on d to rank 4 on e|4 on e to rank [35] on [df]|5 on f to "
                                      "rank 4 on e): a message takes [0-9.]+ times as long as on the others\n"
                                      "all links of rank 4 on e are slow: examine its cable and its NIC\n"));
}

// A program of a user: an allreduce of 256 KiB on two ranks, which exchange NCCL's id through a FIFO.
constexpr const char* kProgram = R"(
#include <fcntl.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
struct Id { char bytes[128]; };
extern "C" int ncclGetUniqueId(Id*);
extern "C" int ncclCommInitRank(void**, int, Id, int);
extern "C" int ncclAllReduce(const void*, void*, unsigned long, int, int, void*, void*);
extern "C" int ncclCommDestroy(void*);
extern "C" int cudaSetDevice(int);
extern "C" int cudaMalloc(void**, unsigned long);
extern "C" int cudaDeviceSynchronize();
int main(int, char** argv) {
  const int rank = std::atoi(std::getenv("RANK")), fifo = open(argv[1], rank == 0 ? O_WRONLY : O_RDONLY);
  Id id;
  void *comm = nullptr, *data = nullptr;
  bool ok = cudaSetDevice(0) == 0;
  if (rank == 0) ok = ok && ncclGetUniqueId(&id) == 0 && write(fifo, &id, sizeof id) == sizeof id;
  else ok = ok && read(fifo, &id, sizeof id) == sizeof id;
  ok = ok && ncclCommInitRank(&comm, 2, id, rank) == 0 && cudaMalloc(&data, 1 << 18) == 0 &&
       ncclAllReduce(data, data, 1 << 16, 7, 0, comm, nullptr) == 0 && cudaDeviceSynchronize() == 0 &&
       ncclCommDestroy(comm) == 0;
  std::puts(ok ? "done" : "failed");
  return ok ? 0 : 1;
})";

TEST_F(TraceOfNccl, HasTheTransfersOfAProgramOfTheUser) {
  if (kSanitized) GTEST_SKIP() << "a library with a sanitizer cannot be preloaded into programs without it";
  std::ofstream(folder_ / "program.cc") << kProgram;
  const Finished built = run_shell("mkfifo id && exec c++ program.cc -o program -L" PLUGFEST_NCCL_LIBRARIES
                                   " -l:libplugfest-cuda.so -Wl,--allow-shlib-undefined " +
                                       plugin::find_nccl(),
                                   [&] { std::filesystem::current_path(folder_.path()); });
  ASSERT_EQ(built.exit_code, 0) << built.output;
  ASSERT_EQ(plugfest("nccl exec -t pair --timeout 120 --trace t.json --packets -- ./program ./id"), 0) << output();
  EXPECT_THAT(output(), AllOf(HasSubstr("[0] done\n"), HasSubstr("[1] done\n")));
  const Parts parts(json::parse(content_of(folder_ / "t.json")));
  EXPECT_FALSE(parts.sends.empty());
  EXPECT_EQ(parts.sends.size(), parts.receives.size());
  EXPECT_EQ(parts.with_call.size(), parts.sends.size() + parts.receives.size());
  EXPECT_EQ(parts.with_packets, parts.sends);
  ASSERT_EQ(plugfest("trace explain t.json"), 0) << output();
  EXPECT_THAT(output(), AllOf(HasSubstr("AllReduce, 262144 bytes, "), HasSubstr("\nrank 1 on b ")));
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
