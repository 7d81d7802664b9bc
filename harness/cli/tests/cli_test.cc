// Wrong command lines and their errors, --help, completion in bash, and commands without a fabric.

#include <algorithm>

#include "harness/cli/tests/program.h"
#include "harness/report/text.h"

namespace plugfest::cli {
namespace {

using testing::AllOf;
using testing::Each;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Le;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

// Runs plugfest and returns its error. Fails the test unless the exit code is 2 and the output one line.
std::string line_of_error(const std::string& arguments) {
  const std::string error = error_of(arguments);
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  return error;
}

TEST(CommandLine, SuggestsSubcommands) {
  EXPECT_EQ(line_of_error("rum"),
            "plugfest: unknown subcommand \"rum\": did you mean run?; see " PLUGFEST_PROGRAM " --help\n");
  EXPECT_THAT(line_of_error("frobnicate"), HasSubstr("expected one of bench, certify, coll, diff, "));
  // The terminal gets no escape sequences that an argument contains.
  EXPECT_THAT(line_of_error("\"$(printf '\\033[31mred')\""), StartsWith("plugfest: unknown subcommand \"?[31mred\": "));
  EXPECT_EQ(line_of_error("run extra"),
            "plugfest: unexpected argument \"extra\"; see " PLUGFEST_PROGRAM " run --help\n");
}

TEST(CommandLine, ShowsHelpWithoutASubcommand) {
  for (const std::string command : {"", "fabric", "bench"}) {
    const Finished answer = plugfest(command);
    EXPECT_EQ(answer.exit_code, 2);
    EXPECT_EQ(answer.output, plugfest(command + " --help").output);
  }
}

TEST(CommandLine, SuggestsOptions) {
  EXPECT_EQ(line_of_error("run --rul CN-06"),
            "plugfest: unknown option \"--rul\": did you mean --rule?; see " PLUGFEST_PROGRAM " run --help\n");
  EXPECT_THAT(line_of_error("bench nic --rounds 0"),
              StartsWith("plugfest: --rounds \"0\": expected a whole number from 1 to 1000; see"));
  EXPECT_THAT(line_of_error("run --seed tomorrow"),
              StartsWith("plugfest: --seed \"tomorrow\": expected a whole number from 0 to 2^64 - 1; see"));
  // This command also has subcommands.
  EXPECT_THAT(line_of_error("nccl allreduce -f 0"),
              StartsWith("plugfest: --factor \"0\": expected a number above 0, 1000000 at most; see"));
  EXPECT_THAT(line_of_error("nccl add"), StartsWith("plugfest: operation \"add\": expected one of all, allreduce, "));
  EXPECT_THAT(line_of_error("run --plugin"), StartsWith("plugfest: --plugin: takes exactly one value, PLUGIN"));
  EXPECT_THAT(line_of_error("fabric exec a"), StartsWith("plugfest: COMMAND is missing; see"));
}

TEST(CommandLine, RefusesFilesThatAreNoPlugin) {
  EXPECT_THAT(line_of_error("run --plugin ./nothing.so"),
              AllOf(HasSubstr("./nothing.so: "), HasSubstr("no such file")));
  EXPECT_THAT(line_of_error("run --plugin /etc/passwd"), HasSubstr("/etc/passwd: not a shared library"));
  EXPECT_THAT(line_of_error("run --plugin /tmp/"), HasSubstr("/tmp/: "));
  EXPECT_THAT(line_of_error(std::string("run --plugin ") + PLUGFEST_LIBZ), HasSubstr("not an NCCL net plugin"));
}

TEST(CommandLine, SmokeSelectsRulesOfEveryGroup) {
  const std::string smoke = output_of(plugfest("run --list --rule @smoke"));
  EXPECT_EQ(std::count(smoke.begin(), smoke.end(), '\n'), 21);
  for (const char* group : {"LD", "IN", "DP", "CN", "MR", "XF", "TS", "FL", "CL", "ER", "TH"})
    EXPECT_THAT(smoke, HasSubstr(std::string(group) + "-")) << group;
}

TEST(CommandLine, ListsGroupsOfRules) {
  EXPECT_THAT(plugfest("run --help").output, HasSubstr("@smoke"));
  const Finished rules = plugfest("rules");
  EXPECT_THAT(rules.output, HasSubstr("\n@smoke  a few fast rules from every part of the contract: 21 rules\n"));
  EXPECT_THAT(rules.output, HasSubstr("\n'LD-*'  the library file: "));
  for (const std::string& line : report::lines_of(rules.output)) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(line_of_error("run --rule @smok"), HasSubstr("no group of rules '@smok': did you mean @smoke?"));
  EXPECT_THAT(line_of_error("rules --rule ZZ-99"), HasSubstr(": " PLUGFEST_PROGRAM " rules lists them"));
  EXPECT_THAT(line_of_error("rules --rule CN-66"), HasSubstr("no rule matches 'CN-66': did you mean CN-06?"));
}

TEST(CommandLine, NamesValidValues) {
  EXPECT_THAT(line_of_error("run --topology moebius"),
              AllOf(HasSubstr("no topology \"moebius\""), HasSubstr("triangle")));
  EXPECT_THAT(line_of_error("run --rule QQ-01"), HasSubstr("QQ-01"));
  EXPECT_THAT(line_of_error("rules --rule QQ-01"), HasSubstr("QQ-01"));
  EXPECT_THAT(line_of_error("run --api v5"), HasSubstr("--api v5: supported net versions are v6 to v12"));
  EXPECT_THAT(line_of_error("run --api new"), HasSubstr("--api \"new\": expected a version such as v8, or all"));
  EXPECT_THAT(line_of_error("run --interface tuna"),
              HasSubstr("--interface \"tuna\": expected one of net, collnet, gin, rma, profiler, tuner, env, all"));
  EXPECT_THAT(line_of_error("run --list --shard 1/-1"), HasSubstr("--shard \"1/-1\": expected I/N, such as 1/4"));
  EXPECT_THAT(line_of_error("run --list --shard ' 1/4'"), HasSubstr("expected I/N, such as 1/4"));
  EXPECT_THAT(line_of_error("run --interface collnet"),
              HasSubstr("no collnet plugin symbol (ncclCollNetPlugin_v6 to _v12)"));
  EXPECT_THAT(line_of_error("run --rule CO-01"), HasSubstr("none of these rules is about an interface that is tested"));
  EXPECT_THAT(line_of_error("run --nic mlx5"),
              HasSubstr("--nic \"mlx5\": expected one of roce, loopback, rxe, vm and system"));
  EXPECT_THAT(line_of_error("run --kernel /boot"), HasSubstr("--kernel: only --nic vm boots one"));
  EXPECT_THAT(
      error_of("run --last-failed --nic vm"),
      EndsWith("plugfest: --last-failed: the virtual machine does not see earlier results: leave out --nic vm\n"));
  EXPECT_THAT(line_of_error("run --allow-host-changes"), HasSubstr("only --nic rxe makes any"));
  EXPECT_THAT(line_of_error("run --nic vm --kernel /etc/passwd"), HasSubstr("/etc/passwd: not a Linux kernel image"));
  EXPECT_THAT(line_of_error("run --shard 5/4"), HasSubstr("--shard \"5/4\": expected I/N, such as 1/4"));
  EXPECT_THAT(line_of_error("run --rule XF-32,xf-34"),
              HasSubstr("--rule: these rules take a minute or gigabytes of memory: add --thorough"));
  EXPECT_THAT(line_of_error("run --rule CN-06 --shard 2/2"),
              HasSubstr("--shard 2/2: this part has no rule, because the run has 1 rule: use fewer parts"));
  EXPECT_THAT(line_of_error("run --fail-fast=x"), StartsWith("plugfest: --fail-fast: takes no value; see "));
  EXPECT_THAT(line_of_error("run --repeat 0"), HasSubstr("--repeat \"0\": expected a whole number from 1 to 1000000"));
  EXPECT_THAT(line_of_error("run --baseline /nowhere.yaml"),
              HasSubstr("known findings /nowhere.yaml: no such file, or not readable"));
  EXPECT_THAT(line_of_error("fabric exec -t triangle d -- true"),
              AllOf(HasSubstr("no host \"d\""), HasSubstr("a, b, c")));
  EXPECT_THAT(line_of_error("run --seed 18446744073709551616"),
              StartsWith("plugfest: --seed \"18446744073709551616\": expected a whole number from 0 to 2^64 - 1; see"));
  EXPECT_THAT(line_of_error("mutants --seed -1"),
              StartsWith("plugfest: --seed \"-1\": expected a whole number from 0"));
  for (const char* scale : {"0", "-1", "1e300", "nan"}) {
    EXPECT_THAT(line_of_error(std::string("run --timeout-scale ") + scale),
                StartsWith("plugfest: --timeout-scale \"" + std::string(scale) +
                           "\": expected a number above 0, 1000000 at most; see"));
  }
  EXPECT_THAT(line_of_error("mutants --mutant unknown"), HasSubstr("unknown"));
  EXPECT_EQ(line_of_error("mutants --mutant members_paired_by_position"),
            "plugfest: 1 mutant left out: the rules need two links between two hosts; run them with --topology "
            "pair:links=2\n");
  EXPECT_EQ(line_of_error("mutants --mutant last_byte_corrupted --rule DP-08"),
            "plugfest: none of these mutants declares these rules: add --matrix to run the rules on other mutants\n");
  EXPECT_EQ(line_of_error("mutants --mutant last_byte_corrupted --rule EE-01 --matrix"),
            "plugfest: none of these rules can run on these mutants\n");
}

TEST(CommandLine, SaysThatStandardOutputCannotBeWritten) {
  const std::string prefix = "plugfest: standard output: cannot write: ";
  for (const char* command :
       {"rules", "rules --json -", "run --list", "mutants --list", "doctor", "doctor --json", "fabric show -t pair",
        "fabric show -t pair --json -", "fabric draw -t pair", "--help", "run --help", "--version"}) {
    EXPECT_EQ(line_of_error(std::string(command) + " >/dev/full"), prefix + "No space left on device\n") << command;
    EXPECT_EQ(line_of_error(std::string(command) + " >&-"), prefix + "Bad file descriptor\n") << command;
  }
  const ScratchFolder folder;
  EXPECT_EQ(output_of(run_shell("ulimit -f 0; exec " PLUGFEST_PROGRAM " rules >" + (folder / "rules").string()), 2),
            prefix + "File too large: see ulimit -f\n");
}

TEST(CommandLine, NeedsNeitherInputNorAnOpenStandardError) {
  for (const char* command : {"rules", "run --list", "mutants --list", "fabric show -t pair", "--version"}) {
    const Finished usual = plugfest(command);
    for (const char* closed : {" <&-", " 2>&-", " <&- 2>&-"}) {
      const Finished answer = plugfest(std::string(command) + closed);
      EXPECT_EQ(answer.exit_code, 0) << command << closed;
      EXPECT_EQ(answer.output, usual.output) << command << closed;
    }
  }
  EXPECT_EQ(plugfest("frobnicate <&- >&- 2>&-").exit_code, 2);
}

TEST(CommandLine, RefusesEmptyValues) {
  for (const char* option : {"--plugin", "--api", "--rule", "--topology", "--nic", "--fabric", "--faults", "--baseline",
                             "--json", "--junit", "--html", "--markdown", "--trace", "--seed", "--timeout-scale"}) {
    EXPECT_THAT(line_of_error(std::string("run ") + option + " ''"),
                StartsWith("plugfest: " + std::string(option) + ": must not be empty; see "));
  }
  EXPECT_THAT(line_of_error("fabric down ''"), HasSubstr(": must not be empty"));
}

TEST(CommandLine, RefusesInvalidFaultsBeforeTheRun) {
  EXPECT_THAT(line_of_error("run --faults los=1%"), HasSubstr("--faults \"los=1%\": did you mean loss?"));
  EXPECT_THAT(line_of_error("run --faults nowhere.yaml"), HasSubstr("faults nowhere.yaml: no such file"));
  const ScratchFolder folder;
  const std::string path = folder / "faults.yaml";
  const auto error_of_entry = [&](const std::string& entry, const std::string& options = "") {
    std::ofstream(path) << "faults:\n  - {" << entry << "}\n";
    return line_of_error("run --faults " + path + " " + options);
  };
  EXPECT_THAT(error_of_entry("do: down, link: a-z"), HasSubstr(":2: link \"a-z\": did you mean a-b?"));
  EXPECT_THAT(error_of_entry("do: kill, host: z"), HasSubstr(":2: host \"z\": did you mean a?"));
  EXPECT_THAT(error_of_entry("do: kill, host: a, on: {rule: XF-60}"),
              HasSubstr(":2: on rule \"XF-60\": did you mean XF-"));
  EXPECT_THAT(error_of_entry("do: kill, host: a, on: {rule: XF-06}", "--rule CN-06"),
              HasSubstr("not selected for this run"));
}

TEST(CommandLine, ChecksResultFilesBeforeTheRun) {
  EXPECT_EQ(line_of_error("run --json /nowhere/r.json"),
            "plugfest: /nowhere/r.json: cannot write: No such file or directory\n");
  EXPECT_THAT(line_of_error("run --junit /tmp"), HasSubstr("/tmp: cannot write: Is a directory"));
  EXPECT_THAT(line_of_error("rules --json /dev/full"), HasSubstr("/dev/full: cannot write: No space left on device"));
}

TEST(CommandLine, PrintsTablesInEightyColumns) {
  std::vector<std::string> commands = {"rules",          "rules --verbose",  "explain '*'",
                                       "mutants --list", "bench nic --list", "doctor"};
  for (const char* topology :
       {"triangle", "star:4", "fat-tree:8,rate=100Gbit,mtu=1500", "leaf-spine:4,4,4", "rail:4,16"})
    commands.push_back(std::string("fabric show -t ") + topology);
  for (const std::string& command : commands) {
    for (const std::string& line : report::lines_of(plugfest(command).output)) {
      const bool is_long = line.find(PLUGFEST_PROGRAM) != std::string::npos || line.find("→") != std::string::npos ||
                           line.find("/vmlinuz-") != std::string::npos;
      EXPECT_TRUE(report::columns(line) <= 80 || is_long) << command << ": " << line;
    }
  }
}

TEST(CommandLine, DrawsAggregationTrees) {
  const std::string drawing = output_of(plugfest("fabric draw -t leaf-spine:2,2,1 --reduction"));
  EXPECT_THAT(drawing, HasSubstr("peripheries=2];\n")) << "the root";
  EXPECT_THAT(drawing, HasSubstr("\"h1\" -- \"link.0\" -- \"leaf1\" [color=\"#c8553d\", penwidth=3];\n"));
  EXPECT_THAT(plugfest("fabric draw -t leaf-spine:2,2,1").output, Not(HasSubstr("penwidth")));
  EXPECT_EQ(
      line_of_error("fabric draw -t pair --reduction"),
      "plugfest: fabric draw --reduction: pair has no switches that can reduce: choose a topology with switches of "
      "one kind, such as star:4 or fat-tree:4, whose subnets have free addresses\n");
}

TEST(CommandLine, DrawsInTheFormatOfTheFileName) {
  EXPECT_EQ(line_of_error("fabric draw -t pair -o d.txt"),
            "plugfest: d.txt: expected a name that ends in .svg, .pdf or .png for a picture, or in .dot or .gv for the "
            "input of dot\n");
  const ScratchFolder folder;
  const std::string picture = (folder / "d.svg").string(), command = "fabric draw -t pair -o ";
  EXPECT_EQ(plugfest(command + (folder / "d.dot").string()).exit_code, 0);
  EXPECT_THAT(content_of(folder / "d.dot"), StartsWith("graph "));
  EXPECT_EQ(error_of(command + picture, [] { setenv("PATH", "/nowhere", 1); }),
            "plugfest: " + picture +
                ": the program dot draws this picture, and is not installed: run\n"
                "    sudo apt-get install graphviz\n  or write the input of dot with -o " +
                (folder / "d.dot").string() + '\n');
  std::ofstream(folder / "dot") << "#!/bin/sh\necho \"<svg>$1 $(cat)\"\n";
  std::filesystem::permissions(folder / "dot", std::filesystem::perms::owner_all);
  EXPECT_EQ(
      run_shell("PATH=" + folder.path().string() + ":$PATH exec " PLUGFEST_PROGRAM " " + command + picture).exit_code,
      0);
  EXPECT_THAT(content_of(picture), StartsWith("<svg>-Tsvg graph "));
}

TEST(CommandLine, RefusesContradictingOutputOptions) {
  EXPECT_THAT(line_of_error("run --quiet --verbose"), HasSubstr("--verbose excludes --quiet: leave out one of them"));
  EXPECT_THAT(line_of_error("run --color blue"), HasSubstr("expected auto, always or never"));
  EXPECT_THAT(line_of_error("run --maxfail 0"), HasSubstr("\"0\": expected a whole number from 1 to"));
  EXPECT_EQ(line_of_error("run --env FOO"), "plugfest: --env \"FOO\": expected NAME=VALUE\n");
  EXPECT_EQ(error_of("run --last-failed",
                     [] {
                       unsetenv("HOME");
                       unsetenv("XDG_STATE_HOME");
                     }),
            "plugfest: --last-failed: there is no folder with earlier results: set XDG_STATE_HOME or HOME\n");
}

TEST(CommandLine, EverySubcommandHasHelpInEightyColumns) {
  EXPECT_THAT(plugfest("--version").output, StartsWith("plugfest "));
  for (const std::string command : {"", "run", "rules", "explain", "mutants", "fabric", "fabric up", "fabric list",
                                    "fabric down", "fabric exec", "fabric show", "fabric draw", "fabric pcap", "bench",
                                    "bench nic", "bench reduction", "bench fabric", "doctor"}) {
    const Finished help = plugfest(command + " --help");
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_THAT(help.output, HasSubstr("--help")) << command;
    EXPECT_THAT(report::lines_of(help.output), Each(SizeIs(Le(80u)))) << command;
    EXPECT_THAT(help.output, Not(HasSubstr("Excludes"))) << command;
  }
  EXPECT_THAT(plugfest("run --help").output,
              AllOf(StartsWith("Test a plugin, rule by rule, on a fabric that is built for the run\n"),
                    HasSubstr("  -t,--topology TOPOLOGY  Hosts and links to build: a name or a YAML file;\n")));
}

TEST(CommandLine, PrintsRules) {
  EXPECT_THAT(output_of(plugfest("rules --verbose --rule CN-06")),
              AllOf(StartsWith("CN-06"), HasSubstr("[M]"), HasSubstr("source: ")));
  EXPECT_THAT(plugfest("run --list --rule 'cn_0[67]'").output, "CN-06\nCN-07\n");
}

TEST(CommandLine, ExplainsRules) {
  const std::string page = output_of(plugfest("explain cn_06"));
  EXPECT_THAT(page, StartsWith("CN-06 [M] connect never waits for the peer\n"));
  EXPECT_THAT(page, HasSubstr("\nmutants     connect_"));
  EXPECT_THAT(page, HasSubstr("\nrun         " PLUGFEST_PROGRAM " run --rule CN-06\n"));
  EXPECT_THAT(output_of(plugfest("explain 'FL-*'")),
              HasSubstr("\nneeds       a CUDA GPU; --emulate-gpu emulates its memory\n"));
  EXPECT_THAT(line_of_error("explain CN-66"), HasSubstr("no rule matches 'CN-66': did you mean CN-06?"));
  EXPECT_THAT(line_of_error("explain"), HasSubstr("RULE"));
}

TEST(CommandLine, WritesTheRulesAsMarkdown) {
  const std::string document = plugfest("rules --markdown -").output;
  EXPECT_THAT(document, StartsWith("# The rules\n"));
  EXPECT_THAT(document, HasSubstr("\n## LD: the library file\n\n### LD-01 \\[M] "));
  EXPECT_THAT(document, HasSubstr("- **Mutants:** `"));
  EXPECT_THAT(document, HasSubstr("writes \\*ndev")) << "Markdown would hide an asterisk";
}

TEST(CommandLine, PrintsTheDoctorsFindings) {
  EXPECT_THAT(line_of_error("doctor --for lab"),
              HasSubstr("--for \"lab\": expected one of fabric, loopback, rxe, vm, system, mesh, nccl, tools"));
  EXPECT_THAT(line_of_error("doctor --json /nowhere/d.json"), HasSubstr("/nowhere/d.json: cannot write"));
  EXPECT_THAT(line_of_error("doctor --peer /nowhere"), HasSubstr("/nowhere: cannot read: No such file or directory"));
  EXPECT_THAT(output_of(plugfest("doctor --for tools")), AllOf(HasSubstr("\nyes  tools "), HasSubstr("iperf3")));
  EXPECT_THAT(plugfest("doctor --for tools --json").output, StartsWith("{\n  \"schema\": 1,"));
}

// What bash offers after these words; the last one may be incomplete.
std::string completed(const std::string& words) {
  return run_shell("bash -c 'source " PLUGFEST_COMPLETION "; plugfest() { exec " PLUGFEST_PROGRAM
                   " \"$@\"; }; COMP_WORDS=(" +
                   words + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _plugfest; echo ${COMPREPLY[@]}'")
      .output;
}

TEST(Completion, OffersSubcommandsOptionsRulesAndFiles) {
  EXPECT_EQ(completed("plugfest ru"), "run rules\n");
  EXPECT_EQ(completed("plugfest fabric do"), "down\n");
  EXPECT_EQ(completed("plugfest run --jun"), "--junit\n");
  EXPECT_EQ(completed("plugfest run --strict --rule CN-06"), "CN-06\n");
  EXPECT_EQ(completed("plugfest run -r CN-06"), "CN-06\n");
  EXPECT_EQ(completed("plugfest run --seed \"\""), "\n");
  EXPECT_EQ(completed("plugfest fabric list --json /etc/hostn"), "/etc/hostname\n");
  const ScratchFolder folder;
  std::ofstream(folder / "barrier.so") << "";
  EXPECT_EQ(completed("plugfest run --plugin " + folder.path().string() + "/ba"),
            (folder / "barrier.so").string() + "\n");
  EXPECT_EQ(completed("plugfest run --topology " + folder.path().string() + "/ba"),
            (folder / "barrier.so").string() + "\n");
  EXPECT_EQ(completed("plugfest run --fabric " + folder.path().string() + "/ba"), "\n") << "a name";
}

}  // namespace
}  // namespace plugfest::cli
