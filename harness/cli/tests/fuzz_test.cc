// plugfest fuzz: passes on correct plugins, finds mutants, explains bad files. Takes many seconds of CPU time,
// because random schedules need some time until one shows the bug of a mutant.
#include <fmt/format.h>

#include <csignal>

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class FuzzOfPlugins : public ::testing::TestWithParam<const char*> {};

TEST_P(FuzzOfPlugins, FindsNothingInACorrectPlugin) {
  if (GetParam() != std::string("mesh")) PLUGFEST_LONG_TEST();
  const ScratchFolder folder;
  const int seconds = runs_long_tests() ? 60 : 2;
  const Finished result = plugfest(fmt::format("fuzz --plugin {} --seconds {} --seed 1 --save {}/x.yaml", GetParam(),
                                               seconds, folder.path().string()));
  if (result.exit_code == 2 && result.output.find("libnccl") != std::string::npos) GTEST_SKIP() << result.output;
  EXPECT_EQ(result.exit_code, 0) << result.output << content_of(folder / "x.yaml");
  EXPECT_THAT(result.output, ContainsRegex("[0-9]+ messages in [0-9]+ schedules"));
}

INSTANTIATE_TEST_SUITE_P(Plugins, FuzzOfPlugins, ::testing::Values("mesh", "nccl:IB"),
                         [](const auto& name) { return name.param == std::string("mesh") ? "Mesh" : "IB"; });

class FuzzOfOneSidedPlugins : public ::testing::TestWithParam<const char*> {};

TEST_P(FuzzOfOneSidedPlugins, FindsNothingInTheMeshPlugin) {
  const ScratchFolder folder;
  const int seconds = runs_long_tests() ? 60 : 1;
  EXPECT_THAT(output_of(plugfest(fmt::format("fuzz --interface {} --seconds {} --seed 1 --save {}/x.yaml", GetParam(),
                                             seconds, folder.path().string()))),
              ContainsRegex("[0-9]+ operations in [0-9]+ schedules?, "))
      << content_of(folder / "x.yaml");
}

INSTANTIATE_TEST_SUITE_P(Versions, FuzzOfOneSidedPlugins, ::testing::Values("gin --api v11", "gin", "rma"),
                         [](const auto& name) {
                           const std::string text = name.param;
                           return text == "rma" ? "Rma" : text == "gin" ? "Gin" : "GinV11";
                         });

class FuzzOfMutants : public ::testing::TestWithParam<const char*> {};

TEST_P(FuzzOfMutants, FindsTheBugWithinAMinute) {
  const ScratchFolder folder;
  EXPECT_THAT(output_of(plugfest(fmt::format("fuzz --seconds 60 --shrink-seconds 1 --seed 1{} --save {}/x.yaml",
                                             mutant(GetParam()), folder.path().string())),
                        1),
              HasSubstr("FAIL  rank "));
}

INSTANTIATE_TEST_SUITE_P(Mutants, FuzzOfMutants,
                         ::testing::Values("close_breaks_all_comms", "equal_tags_filled_in_reverse",
                                           "group_sizes_reversed", "last_byte_corrupted", "messages_reordered",
                                           "one_connection_for_all", "one_group_size_per_comm",
                                           "zero_written_behind_message"),
                         [](const auto& name) { return std::string(name.param); });

TEST(Fuzz, CountsTheMessagesThatARareFaultTakes) {
  PLUGFEST_LONG_TEST();
  const ScratchFolder folder;
  const std::string result =
      output_of(plugfest(fmt::format("fuzz --seconds 60 --shrink-seconds 1 --seed 1{} --save {}/x.yaml",
                                     mutant("one_message_in_100000_corrupted"), folder.path().string())),
                1);
  EXPECT_THAT(result, ContainsRegex("[0-9]+ messages in [0-9]+ schedules"));
  EXPECT_THAT(result, HasSubstr("1 of "));
}

TEST(Fuzz, TheFileOfAFindingReproducesIt) {
  const ScratchFolder folder;
  const std::string file = folder / "x.yaml";
  const std::string found =
      output_of(plugfest(fmt::format("fuzz --seconds 60 --seed 5{} --save {} --json {}/r.json",
                                     mutant("posted_size_reported"), file, folder.path().string())),
                1);
  EXPECT_THAT(found, ContainsRegex("shrunk to [0-9]+ of [0-9]+ steps; deviates in 3 of 3 runs, after "));
  EXPECT_THAT(found, ContainsRegex("oracle: nccl:IB (passes this schedule: the bug is in the plugin|did not run)"));
  const nlohmann::json json = nlohmann::json::parse(content_of(folder / "r.json"));
  EXPECT_EQ(json["seed"], 5);
  EXPECT_LE(json["finding"]["steps"].size(), json["finding"]["steps_before"].get<std::size_t>());
  EXPECT_EQ(json["finding"]["file"], file);
  const std::string replay = "fuzz --replay " + file;
  EXPECT_THAT(output_of(plugfest(replay + mutant("posted_size_reported")), 1),
              HasSubstr("FAIL  " + json["finding"]["message"].get<std::string>()));
  EXPECT_EQ(plugfest(replay).exit_code, 0);
}

TEST(FuzzOneSided, ShrinksToTheOperationOfAFault) {
  const ScratchFolder folder;
  const std::string file = folder / "x.yaml";
  const std::string found =
      output_of(plugfest(fmt::format("fuzz --interface rma --seconds 60 --seed 5{} --save {} --json {}/r.json",
                                     mutant("one_sided_increment_adds_value"), file, folder.path().string())),
                1);
  EXPECT_THAT(found, ContainsRegex("FAIL  rank h[123].eth0: signal [01] is "));
  EXPECT_THAT(found, ContainsRegex("shrunk to 1 of [0-9]+ steps; deviates in [123] of [123] runs?, after 1 operation:\n"
                                   "    put: \\{from: h[123].eth0, to: h[123].eth0, signal: 0\\}\n"));
  EXPECT_THAT(found, ContainsRegex("oracle: nccl:GIN (passes this schedule: the bug is in the plugin|did not run)"));
  const nlohmann::json json = nlohmann::json::parse(content_of(folder / "r.json"));
  EXPECT_EQ(json["interface"], "rma");
  // The command that fuzz prints repeats the finding.
  const std::string again = json["finding"]["again"].get<std::string>();
  EXPECT_THAT(again, ::testing::EndsWith(" --replay " + file));
  EXPECT_THAT(output_of(run_shell(again), 1), HasSubstr("FAIL  " + json["finding"]["message"].get<std::string>()));
  EXPECT_EQ(plugfest("fuzz --replay " + file).exit_code, 0);
}

TEST(FuzzOneSided, NeedsAVersionWithPuts) {
  EXPECT_EQ(error_of("fuzz --interface gin --plugin " PLUGFEST_MUTANTS "/libgin-toy.so"),
            "plugfest: --api: gin v15 has no puts, which the GPU starts: name an older version\n");
  for (const std::string option :
       {"--interface gin", "--topology pair", "--seed 1", "--seconds 1", "--shrink-seconds 1"}) {
    EXPECT_THAT(error_of("fuzz --replay x.yaml " + option),
                HasSubstr("--replay excludes " + option.substr(0, option.find(' ')) + ": leave out one of them"));
  }
  EXPECT_EQ(error_of("fuzz --api all"), "plugfest: --api all: expected one version such as v8\n");
  EXPECT_THAT(error_of("fuzz --interface env"), HasSubstr("--interface \"env\": expected net, gin or rma"));
}

TEST(Fuzz, PrintsASummaryAfterCtrlC) {
  const ScratchFolder folder;
  const pid_t child = start_plugfest({"fuzz", "--seconds", "600", "--json", folder / "r.json"}, folder / "output");
  await_output(folder / "output", "seed");
  kill(child, SIGINT);
  EXPECT_EQ(await_exit(child), 130);
  EXPECT_THAT(content_of(folder / "output"), ContainsRegex("[0-9]+ messages? in [0-9]+ schedules?, .* s\n"));
  EXPECT_EQ(nlohmann::json::parse(content_of(folder / "r.json"))["stop_signal"], SIGINT);
}

TEST(FuzzReplay, RunsAFile) {
  const ScratchFolder folder;
  std::ofstream(folder / "x.yaml") << "topology: pair\nranks: [a.eth0, b.eth0]\nseed: 3\nsteps:\n"
                                      "  - connect: {comm: 4, from: b.eth0, to: a.eth0, window: 2}\n"
                                      "  - message: {comm: 4, tag: 7, bytes: 1000, room: 1200, repeat: 99}\n";
  const std::string replay = fmt::format("fuzz --replay {}/x.yaml", folder.path().string());
  EXPECT_THAT(output_of(plugfest(replay)), HasSubstr("99 messages"));
  EXPECT_THAT(output_of(plugfest(replay + mutant("posted_size_reported")), 1),
              HasSubstr("FAIL  rank a.eth0: 1000 bytes with tag 7 (repetition 1 of 99): sizes[0] = 1200\n"
                        "  message: {comm: 4, tag: 7, bytes: 1000, room: 1200, repeat: 99}\n"));
}

TEST(FuzzReplay, RegistersAgainFreezesAndInjectsFaults) {
  const ScratchFolder folder;
  std::ofstream(folder / "x.yaml") << "topology: pair\nranks: [a.eth0, b.eth0]\nseed: 3\nfaults: loss=1%\nsteps:\n"
                                      "  - connect: {comm: 0, from: b.eth0, to: a.eth0}\n"
                                      "  - connect: {comm: 1, from: a.eth0, to: b.eth0}\n"
                                      "  - register: {comm: 1}\n"
                                      "  - freeze: {rank: a.eth0, at-us: 100, us: 2000}\n"
                                      "  - message: {comm: 0, tag: 7, bytes: 9000, repeat: 50}\n"
                                      "  - register: {comm: 0}\n"
                                      "  - message: {comm: 0, tag: 7, bytes: 9000, repeat: 50}\n";
  EXPECT_THAT(output_of(plugfest(fmt::format("fuzz --replay {}/x.yaml", folder.path().string()))),
              HasSubstr("100 messages in 1 schedule"));
}

TEST(FuzzReplay, ExplainsABadFile) {
  const ScratchFolder folder;
  std::ofstream(folder / "x.yaml") << "topology: pair\nranks: [a.eth0, b.eth0]\nseed: 3\nsteps:\n"
                                      "  - connect: {comm: 0, from: a.eth0, to: b.eth0}\n"
                                      "  - close: {comm: 0}\n"
                                      "  - message: {comm: 0, tag: 1, bytes: 1}\n";
  const std::string path = folder / "x.yaml";
  EXPECT_EQ(error_of("fuzz --replay " + path),
            fmt::format("plugfest: schedule {}:7: message: comm 0 is closed\n", path));
  std::ofstream(folder / "x.yaml") << "topology: pair\nranks: [a.eth0, b.eth3]\nseed: 3\nsteps: []\n";
  EXPECT_EQ(error_of("fuzz --replay " + path),
            fmt::format("plugfest: schedule {}: ranks: \"b.eth3\": did you mean b.eth0?\n", path));
  std::ofstream(folder / "x.yaml") << "topology: pair\nranks: [a.eth0]\nseed: 3\nfaults: los=1%\nsteps: []\n";
  EXPECT_THAT(error_of("fuzz --replay " + path),
              HasSubstr("schedule " + path + ": faults \"los=1%\": did you mean loss?"));
  EXPECT_THAT(error_of("fuzz --replay /none.yaml"), HasSubstr("schedule /none.yaml: no such file"));
}

}  // namespace
}  // namespace plugfest::cli
