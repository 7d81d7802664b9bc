// What a user types that cannot work, and the one line he reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "test_paths.h"

namespace plugfest::cli {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

struct Answer {
  int exit_code = -1;
  std::string output;
};

/// Runs "plugfest ARGUMENTS" through the shell; `redirection` decides what is read: all, or standard error alone.
Answer plugfest(const std::string& arguments, const std::string& redirection = "2>&1") {
  const std::string command = std::string(PLUGFEST_PROGRAM) + " " + arguments + " " + redirection;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  Answer answer;
  std::array<char, 4096> buffer;
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    answer.output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  answer.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return answer;
}

/// The one line of an error; fails the test when there is more, less, or another exit code than 2.
std::string refusal(const std::string& arguments) {
  const Answer answer = plugfest(arguments);
  EXPECT_EQ(answer.exit_code, 2) << answer.output;
  EXPECT_EQ(std::count(answer.output.begin(), answer.output.end(), '\n'), 1) << answer.output;
  EXPECT_THAT(answer.output, StartsWith("plugfest: "));
  return answer.output;
}

TEST(CommandLine, SaysWhichSubcommandWasMeant) {
  EXPECT_EQ(refusal("rum"), "plugfest: unknown subcommand \"rum\": did you mean run?; see plugfest --help\n");
  EXPECT_THAT(refusal("frobnicate"), HasSubstr("there are bench, doctor, fabric, mutants, rules, run"));
  EXPECT_EQ(refusal(""),
            "plugfest: no subcommand: there are run, rules, mutants, fabric, bench, doctor; see plugfest --help\n");
  EXPECT_THAT(refusal("fabric"), EndsWith("see plugfest fabric --help\n"));
  EXPECT_EQ(refusal("run extra"), "plugfest: unexpected argument \"extra\"; see plugfest run --help\n");
}

TEST(CommandLine, SaysWhichOptionWasMeant) {
  EXPECT_EQ(refusal("run --rul CN-06"),
            "plugfest: unknown option \"--rul\": did you mean --rule?; see plugfest run --help\n");
  EXPECT_THAT(refusal("run --seed tomorrow"),
              StartsWith("plugfest: --seed \"tomorrow\": expected a whole number; see"));
  EXPECT_THAT(refusal("run --plugin"), StartsWith("plugfest: --plugin: expected PLUGIN after it"));
  EXPECT_THAT(refusal("fabric exec a"), StartsWith("plugfest: COMMAND is missing; see"));
}

TEST(CommandLine, RefusesWhatIsNoPlugin) {
  EXPECT_THAT(refusal("run --plugin ./nothing.so"), AllOf(HasSubstr("./nothing.so: "), HasSubstr("no such file")));
  EXPECT_THAT(refusal("run --plugin /etc/passwd"), HasSubstr("/etc/passwd: not a shared library"));
  EXPECT_THAT(refusal("run --plugin /tmp/"), HasSubstr("/tmp/: "));
  EXPECT_THAT(refusal(std::string("run --plugin ") + PLUGFEST_LIBZ), HasSubstr("not an NCCL net plugin"));
}

TEST(CommandLine, SmokeTouchesEveryGroupOfRules) {
  const Answer smoke = plugfest("run --list --rule @smoke");
  EXPECT_EQ(smoke.exit_code, 0) << smoke.output;
  EXPECT_EQ(std::count(smoke.output.begin(), smoke.output.end(), '\n'), 21);
  for (const char* group : {"LD", "IN", "DP", "CN", "MR", "XF", "TS", "FL", "CL", "ER", "TH"}) {
    EXPECT_THAT(smoke.output, HasSubstr(std::string(group) + "-")) << group;
  }
}

TEST(CommandLine, NamesWhatThereIs) {
  EXPECT_THAT(refusal("run --topology moebius"), AllOf(HasSubstr("no topology \"moebius\""), HasSubstr("triangle")));
  EXPECT_THAT(refusal("run --rule QQ-01"), HasSubstr("QQ-01"));
  EXPECT_THAT(refusal("rules --rule QQ-01"), HasSubstr("QQ-01"));
  EXPECT_THAT(refusal("run --api v5"), HasSubstr("--api v5: net versions v6 to v12 are known here"));
  EXPECT_THAT(refusal("run --api new"), HasSubstr("--api \"new\": expected a version such as v8, or all"));
  EXPECT_THAT(refusal("run --nic mlx5"), HasSubstr("--nic \"mlx5\": there are roce, loopback, rxe, vm and system"));
  EXPECT_THAT(refusal("run --kernel /boot"), HasSubstr("--kernel: only --nic vm boots one"));
  EXPECT_THAT(refusal("run --allow-host-changes"), HasSubstr("only --nic rxe makes any"));
  EXPECT_THAT(refusal("run --nic vm --kernel /etc/passwd"), HasSubstr("/etc/passwd: not a Linux kernel image"));
  EXPECT_THAT(refusal("run --shard 5/4"), HasSubstr("--shard \"5/4\": expected which part of how many, such as 1/4"));
  EXPECT_THAT(refusal("run --rule CN-06 --shard 2/2"), HasSubstr("there are only 1 rules to share out"));
  EXPECT_THAT(refusal("run --repeat 0"), HasSubstr("--repeat: expected a whole number above 0"));
  EXPECT_THAT(refusal("run --loader foo"), HasSubstr("--loader \"foo\": there are plugfest and nccl"));
  EXPECT_THAT(refusal("run --baseline /nowhere.yaml"), HasSubstr("/nowhere.yaml: cannot read the known findings"));
  EXPECT_THAT(refusal("fabric exec -t triangle d -- true"), AllOf(HasSubstr("no host \"d\""), HasSubstr("a, b, c")));
  EXPECT_THAT(
      refusal("run --seed 18446744073709551616"),
      StartsWith("plugfest: --seed: \"18446744073709551616\": expected a whole number from 0 to 2^64 - 1; see"));
  EXPECT_THAT(refusal("mutants --seed -1"), StartsWith("plugfest: --seed: \"-1\": expected a whole number from 0"));
  for (const char* scale : {"0", "-1", "1e300", "nan"}) {
    EXPECT_THAT(refusal(std::string("run --timeout-scale ") + scale),
                StartsWith("plugfest: --timeout-scale: \"" + std::string(scale) +
                           "\": expected a number above 0, 1000000 at most; see"));
  }
  EXPECT_THAT(refusal("mutants --mutant unknown"), HasSubstr("unknown"));
}

TEST(CommandLine, RefusesFaultsThatCannotBeBeforeTheRun) {
  EXPECT_THAT(refusal("run --faults los=1%"), HasSubstr("--faults \"los=1%\": did you mean loss?"));
  EXPECT_THAT(refusal("run --faults nowhere.yaml"), HasSubstr("faults nowhere.yaml: no such file"));
  const std::string path = testing::TempDir() + "plugfest-cli-test-faults.yaml";
  const auto refusal_of = [&](const std::string& entry, const std::string& options = "") {
    std::ofstream(path) << "faults:\n  - {" << entry << "}\n";
    return refusal("run --faults " + path + " " + options);
  };
  EXPECT_THAT(refusal_of("do: down, link: a-z"), HasSubstr(":2: link \"a-z\": did you mean a-b?"));
  EXPECT_THAT(refusal_of("do: kill, host: z"), HasSubstr(":2: host \"z\": did you mean a?"));
  EXPECT_THAT(refusal_of("do: kill, host: a, on: {rule: XF-60}"), HasSubstr(":2: on rule \"XF-60\": did you mean XF-"));
  EXPECT_THAT(refusal_of("do: kill, host: a, on: {rule: XF-06}", "--rule CN-06"), HasSubstr("not among the rules"));
  std::remove(path.c_str());
}

TEST(CommandLine, RefusesResultFilesBeforeTheRun) {
  EXPECT_EQ(refusal("run --json /nowhere/r.json"),
            "plugfest: /nowhere/r.json: cannot write there: No such file or directory\n");
  EXPECT_THAT(refusal("run --junit /tmp"), HasSubstr("/tmp: cannot write there: Is a directory"));
  EXPECT_THAT(refusal("rules --json /dev/full"), HasSubstr("/dev/full: cannot write: No space left on device"));
}

TEST(CommandLine, HelpAndVersionWorkEverywhere) {
  EXPECT_THAT(plugfest("--version").output, StartsWith("plugfest "));
  for (const std::string each : {"", "run", "rules", "mutants", "fabric", "fabric up", "fabric list", "fabric down",
                                 "fabric exec", "fabric show", "fabric draw", "doctor"}) {
    const Answer help = plugfest(each + " --help");
    EXPECT_EQ(help.exit_code, 0) << each;
    EXPECT_THAT(help.output, HasSubstr("--help")) << each;
  }
}

TEST(CommandLine, PrintsTheCatalogue) {
  const Answer rules = plugfest("rules --verbose --rule CN-06");
  EXPECT_EQ(rules.exit_code, 0);
  EXPECT_THAT(rules.output, AllOf(StartsWith("CN-06"), HasSubstr("[M]"), HasSubstr("source: ")));
  EXPECT_THAT(plugfest("run --list --rule 'cn_0[67]'").output, "CN-06\nCN-07\n");
}

TEST(CommandLine, SaysWhatTheMachineCanRun) {
  EXPECT_THAT(refusal("doctor --for lab"),
              HasSubstr("--for \"lab\": there are fabric, loopback, rxe, vm, system, nccl, tools"));
  EXPECT_THAT(refusal("doctor --json /nowhere/d.json"), HasSubstr("/nowhere/d.json: cannot write there"));
  const Answer table = plugfest("doctor --for tools");
  EXPECT_EQ(table.exit_code, 0) << table.output;
  EXPECT_THAT(table.output, AllOf(HasSubstr("\nyes  tools "), HasSubstr("iperf3")));
  EXPECT_THAT(plugfest("doctor --for tools --json").output, StartsWith("{\n  \"schema\": 1,"));
}

}  // namespace
}  // namespace plugfest::cli
