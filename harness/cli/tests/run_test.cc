// plugfest run and fabric exec on a fabric: output and exit codes.

#include <sched.h>
#include <stdlib.h>

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Writes a baseline that waives XF-09.
fs::path known_finding(const fs::path& path) {
  std::ofstream(path)
      << "findings:\n  - {rule: XF-09, subject: '*posted_size_reported.so', reason: broken on purpose}\n";
  return path;
}

TEST_F(RunTest, TestsTheBundledPluginOverARelay) {
  EXPECT_EQ(run_rules("--topology line:3 --path h1.eth0,h3.eth0 --env 'NCCL_MESH_RELAY_SECRET=a secret of this test' "
                      "--rule CN-01,CN-07,MR-01,XF-06,XF-23,TS-01"),
            0)
      << output();
  const auto results = read_results();
  EXPECT_EQ(results["summary"]["pass"], 6);
  EXPECT_EQ(results["runs"].at(0)["rules"].at(0)["path"], "h1.eth0 h3.eth0");
  // Without the relay the hosts do not reach each other.
  EXPECT_EQ(run_rules("--topology line:3 --path h1.eth0,h3.eth0 --rule XF-06"), 1);
  EXPECT_THAT(output(), HasSubstr("no NIC of this host reaches the peer"));
  EXPECT_THAT(output(), HasSubstr(" --path h1.eth0,h3.eth0 "));  // the command that repeats the rule
}

TEST_F(RunTest, RefusesPathsThatTheTopologyLacks) {
  for (const char* path : {"h1.eth0", "h1.eth0,h3.eth9", "h2.eth0,h2.eth1", ","}) {
    EXPECT_EQ(run_rules(std::string("--topology line:3 --path ") + path), 2) << path;
    EXPECT_THAT(output(), HasSubstr(std::string("--path \"") + path +
                                    "\": expected interfaces of two hosts of line:3, separated by a comma: h1.eth0, "
                                    "h2.eth0, h2.eth1, h3.eth0"));
  }
}

TEST_F(RunTest, SaysThatPacketsNamedAnUnknownQueuePair) {
  EXPECT_EQ(run_rules("--rule XF-01" + mutant("queue_pair_number_of_16_bits")), 1) << output();
  const std::string message = read_results()["runs"].at(0)["rules"].at(0)["message"];
  EXPECT_THAT(message,
              ContainsRegex("\nNIC [abc].eth[01] dropped [0-9]+ packets? for a queue pair number that its host "
                            "does not have: the number that the peer was told is wrong, or the queue pair "
                            "was destroyed"));
}

TEST_F(RunTest, TestsTheBundledPlugin) {
  EXPECT_EQ(run_rules("--rule CN-06,XF-06,DP-01 --seed 7"), 0) << output();
  const auto results = read_results();
  EXPECT_EQ(results["summary"]["pass"], 3);
  EXPECT_EQ(results["runs"].at(0)["seed"], 7);
  EXPECT_EQ(results["runs"].at(0)["rules"].size(), 3u);
  EXPECT_THAT(output(), HasSubstr("3 pass"));
  EXPECT_THAT(output(), Not(HasSubstr("found by"))) << "the names of the devices tell";
  const auto& transport = results["runs"].at(0)["transport"];
  EXPECT_EQ(transport["is_nic"], true) << transport;
  EXPECT_GT(transport["packets"], 10000) << "XF-06 sends 10,000 messages";
}

TEST_F(RunTest, EightRunsAtOnceOnOneProcessorPass) {
  PLUGFEST_LONG_TEST();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  std::vector<pid_t> runs;
  for (int i = 0; i < 8; ++i) {
    runs.push_back(start_plugfest({"run", "--rule", "IN-01,CN-09,XF-03,XF-06,TS-09,ER-04", "--timeout-scale", "0.3"},
                                  folder_ / std::to_string(i)));
  }
  for (std::size_t i = 0; i < runs.size(); ++i)
    EXPECT_EQ(await_exit(runs[i]), 0) << content_of(folder_ / std::to_string(i));
}

TEST_F(RunTest, ReportsAFailureWithTheCommandThatRepeatsIt) {
  const std::string mutant = PLUGFEST_MUTANTS "/libnccl-net-posted_size_reported.so";
  std::ofstream(folder_ / "r.md") << "# an earlier step\n";
  const Finished run = run_shell("NCCL_FOO='1 2' OTHER=3 " PLUGFEST_PROGRAM " run --plugin " + mutant +
                                     " --rule XF-09 --seed 7 --device roce_eth0=a/eth0 --env 'FOO=a b' --env "
                                     "FOO_TOKEN=abc --json - --junit r.xml --html r.html --markdown r.md 2>text",
                                 [&] { fs::current_path(folder_.path()); });
  EXPECT_EQ(run.exit_code, 1) << content_of(folder_ / "text");
  EXPECT_THAT(
      content_of(folder_ / "text"),
      AllOf(HasSubstr("FAIL XF-09"), HasSubstr("last calls:"),
            HasSubstr("  again:  NCCL_FOO='1 2' " PLUGFEST_PROGRAM " run --plugin " + mutant +
                      " --device 'roce_eth0=a/eth0' --env 'FOO=a b' --env FOO_TOKEN=\"$FOO_TOKEN\" --api v12 --seed 7 "
                      "--rule XF-09\n")));
  // Standard output contains only the results.
  const nlohmann::json json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json["summary"]["fail"], 1);
  EXPECT_EQ(json["runs"].at(0)["environment"],
            (std::vector<std::string>{"NCCL_FOO=1 2", "FOO=a b", "FOO_TOKEN=(secret)"}));
  EXPECT_THAT(content_of(folder_ / "r.xml"), HasSubstr("failures=\"1\""));
  EXPECT_THAT(content_of(folder_ / "r.html"), HasSubstr("test reports the size that was sent"));
  EXPECT_THAT(content_of(folder_ / "r.md"), AllOf(StartsWith("# an earlier step\n"), HasSubstr("| ❌ fail | XF-09 |")));
}

TEST_F(RunTest, RepeatsTheVariablesThatThePluginReads) {
  // The toy plugin reads TOY_FAULT.
  const Finished run = run_shell(
      "TOY_FAULT='devices writes nothing' FI_PROVIDER=efa UCX_TLS=rc,ud OTHER=3 NCCL_TOY_TOKEN=abc " PLUGFEST_PROGRAM
      " run --plugin " PLUGFEST_TOY_PLUGIN " --rule DP-01 --json r.json",
      [&] { fs::current_path(folder_.path()); });
  EXPECT_EQ(run.exit_code, 1) << run.output;
  EXPECT_THAT(run.output,
              HasSubstr("again:  FI_PROVIDER=efa NCCL_TOY_TOKEN=\"$NCCL_TOY_TOKEN\" TOY_FAULT='devices writes "
                        "nothing' UCX_TLS=rc,ud " PLUGFEST_PROGRAM " run --plugin "));
  EXPECT_EQ(read_results()["runs"].at(0)["environment"],
            (std::vector<std::string>{"FI_PROVIDER=efa", "NCCL_TOY_TOKEN=(secret)", "TOY_FAULT=devices writes nothing",
                                      "UCX_TLS=rc,ud"}));
}

TEST_F(RunTest, KeepsThePacketsOfRulesThatFail) {
  const fs::path packets = folder_ / "packets";
  EXPECT_EQ(
      run_rules("--plugin " PLUGFEST_MUTANTS "/libnccl-net-posted_size_reported.so --rule XF-06 --rule XF-09 --pcap " +
                packets.string()),
      1)
      << output();
  std::vector<std::string> files;
  for (const auto& file : fs::directory_iterator(packets)) files.push_back(file.path().filename());
  EXPECT_EQ(files, std::vector<std::string>{"XF-09.pcapng"}) << output();
  const nlohmann::json results = read_results();
  for (const nlohmann::json& rule : results["runs"].at(0)["rules"]) {
    EXPECT_EQ(rule.contains("capture"), rule["id"] == "XF-09");
    EXPECT_TRUE(rule["id"] != "XF-09" || !rule["capture"]["packets"].empty());
  }
  EXPECT_EQ(run_rules("--nic loopback --pcap " + packets.string()), 2);
  EXPECT_THAT(output(), HasSubstr("--pcap: only the user-space NIC on a fabric captures packets: leave out --nic"));
}

TEST_F(RunTest, TestsEveryInterfaceThatALibraryExports) {
  const std::string mutant = PLUGFEST_MUTANTS "/libnccl-net-profiler_without_states.so";
  EXPECT_EQ(run_rules("--plugin " + mutant + " --rule LD-01,CO-01,PI-01 --seed 7"), 1) << output();
  EXPECT_THAT(output(), HasSubstr("again:  " PLUGFEST_PROGRAM " run --plugin " + mutant +
                                  " --topology star:3 --interface profiler --api v6 --seed 7 --rule PI-01"));
  const nlohmann::json runs = read_results()["runs"];
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0]["interface"], "net");
  EXPECT_EQ(runs[1]["interface"], "collnet");
  EXPECT_EQ(runs[2]["interface"], "profiler");
  EXPECT_EQ(runs[2]["api"], 6);

  EXPECT_EQ(run_rules("--plugin " PLUGFEST_MUTANTS "/libprofiler-toy.so --api v4"), 0) << output();
  EXPECT_THAT(output(), HasSubstr("ProfilerToy profiler v4: 15 pass"));
}

TEST_F(RunTest, TestsTheVersionsThatAReleaseOfNcclLoads) {
  EXPECT_EQ(run_rules("--for nccl-2.27.7 --rule LD-01,XF-06 --seed 7"), 0) << output();
  EXPECT_THAT(output(), HasSubstr("\n  nccl 2.27.7 loads net v10 of this library\n"
                                  "  NCCL 2.27.7 will not use GIN v11, v12, v13\n"
                                  "  NCCL 2.27.7 will not use RMA v13, v14, v15, v16\n"));
  nlohmann::json results = read_results();
  EXPECT_EQ(results["runs"].at(0)["api"], 10);
  EXPECT_EQ(results["release"], nlohmann::json::parse(R"({"nccl": "2.27.7",
                                                          "unused": ["GIN v11, v12, v13", "RMA v13, v14, v15, v16"]})"));

  const std::string some = PLUGFEST_MUTANTS "/libnccl-net-some_versions.so";
  EXPECT_EQ(run_rules("--plugin " + some + " --for 2.30.7 --rule LD-06"), 0) << output();
  EXPECT_THAT(output(), HasSubstr("\n  nccl 2.30.7 loads net v11 of this library\n"
                                  "  NCCL 2.30.7 will not use GIN v11\n"));
  EXPECT_EQ(read_results()["release"]["unused"], std::vector<std::string>{"GIN v11"});

  const std::string states = PLUGFEST_MUTANTS "/libnccl-net-profiler_without_states.so";
  EXPECT_EQ(run_rules("--plugin " + states + " --for nccl-2.30.4 --rule LD-01,CO-01,PI-01 --seed 7"), 1) << output();
  EXPECT_THAT(output(), HasSubstr("nccl 2.30.4 loads collnet v12 of this library"));
  EXPECT_THAT(output(), HasSubstr("run --plugin " + states +
                                  " --topology star:3 --interface profiler --api v6 --seed 7 --rule PI-01"));
}

TEST_F(RunTest, RefusesReleasesThatItDoesNotKnowOrThatLoadNothing) {
  EXPECT_EQ(run_rules("--for nccl-2.30.6"), 2);
  EXPECT_EQ(output(),
            "plugfest: --for \"nccl-2.30.6\": expected a release of NCCL, such as nccl-2.30.7; the nearest known ones: "
            "2.30.3, 2.30.4 and 2.30.7\n");
  const std::string newest = PLUGFEST_MUTANTS "/libnccl-net-newest_version_only.so";
  EXPECT_EQ(run_rules("--for nccl-2.28.9 --plugin " + newest), 2);
  EXPECT_EQ(output(), "plugfest: " + fs::canonical(newest).string() +
                          ": NCCL 2.28.9 loads nothing of it: it exports net v12, and NCCL 2.28.9 looks for net v6 to "
                          "v11, CollNet v6 to v11, GIN v11, profiler v1 to v5, tuner v2 to v5, env v1\n");
  std::string tuner = content_of(PLUGFEST_MUTANTS "/libtuner-toy.so");
  const std::string second = "ncclTunerPlugin_v2";
  for (std::size_t at = 0; (at = tuner.find(second, at)) != std::string::npos;) tuner[at + second.size() - 1] = '1';
  const std::string old = folder_ / "libold.so";
  std::ofstream(old, std::ios::binary) << tuner;
  EXPECT_EQ(run_rules("--for nccl-2.19.4 --plugin " + old), 2);
  EXPECT_EQ(output(), "plugfest: " + old + ": NCCL 2.19.4 loads tuner v1 of it, and plugfest tests v2 to v6\n");
  EXPECT_EQ(run_rules("--for nccl-2.30.7 --api v8"), 2);
  EXPECT_THAT(output(), HasSubstr("--api excludes --for: leave out one of them"));
}

TEST_F(RunTest, FindsDevicesWhoseNamesTellNothing) {
  EXPECT_EQ(run_rules("--plugin " PLUGFEST_RENAMED_DEVICES
                      " --rule CN-06,XF-06 --topology pair:links=2 --device foo1=b/eth1"),
            0)
      << output();
  EXPECT_THAT(output(), HasSubstr("2 pass"));
  EXPECT_THAT(output(), HasSubstr("  a.eth1           1: foo1          trial\n"));
  EXPECT_THAT(output(), HasSubstr("  b.eth1           1: foo1          --device\n"));
  const auto devices = read_results()["runs"].at(0)["devices"];
  EXPECT_EQ(devices.size(), 4u);
  EXPECT_EQ(devices.at(0),
            nlohmann::json::parse(R"({"interface": "a.eth0", "device": "foo0", "index": 0, "found_by": "trial"})"));
}

TEST_F(RunTest, FindsDevicesByTheFoldersOfTheirPciFunctions) {
  const std::string mutant = PLUGFEST_MUTANTS "/libnccl-net-one_name_for_all_devices.so";
  EXPECT_EQ(run_rules("--plugin " + mutant + " --rule CN-06"), 0) << output();
  EXPECT_THAT(output(), HasSubstr("  a.eth1           1: nic           pciPath\n"));
}

TEST_F(RunTest, BoundsTextsOfThePlugin) {
  setenv("RENAMED_DEVICES", "endless", 1);
  EXPECT_EQ(
      run_rules("--plugin " PLUGFEST_RENAMED_DEVICES " --rule CN-06,DP-08 --junit r.xml --html r.html --markdown r.md"),
      1)
      << output();
  unsetenv("RENAMED_DEVICES");
  constexpr std::size_t kMaxBytes = 200'000;
  EXPECT_LT(output().size(), kMaxBytes);
  for (const char* name : {"r.json", "r.xml", "r.html", "r.md"}) {
    EXPECT_LT(content_of(folder_ / name).size(), kMaxBytes) << name;
    EXPECT_THAT(content_of(folder_ / name), HasSubstr("… (1048576 bytes)")) << name;
  }
  std::istringstream lines(output());
  for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 1200u) << line.substr(0, 80);
}

TEST_F(RunTest, RefusesADeviceThatDoesNotExist) {
  EXPECT_EQ(run_rules("--rule CN-06 --device roce_eth7=a/eth0"), 2);
  EXPECT_EQ(output(),
            "plugfest: --device roce_eth7=a/eth0: the plugin has no device roce_eth7 on host a: did you mean "
            "roce_eth0?\n");
  EXPECT_EQ(run_rules("--rule CN-06 --device roce_eth0"), 2);
  EXPECT_EQ(output(), "plugfest: --device \"roce_eth0\": expected NAME=HOST/INTERFACE, as in foo0=a/eth0\n");
}

TEST_F(RunTest, RefusesABaselineWithAnUnknownRule) {
  const fs::path known = folder_ / "known.yaml";
  std::ofstream(known) << "findings:\n  - {rule: CN-99, subject: Mesh, reason: why}\n";
  EXPECT_EQ(run_rules("--rule CN-06 --baseline " + known.string()), 2);
  EXPECT_THAT(output(), HasSubstr("known.yaml:2: no rule \"CN-99\": did you mean CN-09?\n"));
  EXPECT_EQ(run_rules("--rule CN-06 --baseline " + folder_.path().string()), 2);
  EXPECT_EQ(output(), "plugfest: known findings " + folder_.path().string() + ": is a folder: expected a YAML file\n");
}

TEST_F(RunTest, NamesTheLimitOfNamespaces) {
  const auto refusal = [](const std::string& kind, int limit) {
    return run_shell("unshare --user --map-root-user sh -c 'echo " + std::to_string(limit) + " >/proc/sys/user/max_" +
                     kind + "_namespaces && exec " PLUGFEST_PROGRAM " run --rule CN-06'");
  };
  const Finished network = refusal("net", 2);
  EXPECT_EQ(network.exit_code, 2);
  EXPECT_EQ(network.output,
            "plugfest: cannot create another network namespace: the limit user.max_net_namespaces is reached: raise it "
            "with sysctl, use fewer hosts, or end other fabrics\n");
  EXPECT_THAT(refusal("mnt", 2).output,
              HasSubstr("cannot create another mount namespace: the limit user.max_mnt_namespaces or fs.mount-max"));
  EXPECT_THAT(refusal("net", 0).output, HasSubstr("(user.max_net_namespaces is 0): raise it with sysctl"));
}

TEST_F(RunTest, WaivesKnownFindings) {
  EXPECT_EQ(run_rules("--plugin " PLUGFEST_MUTANTS "/libnccl-net-posted_size_reported.so --rule XF-09 --baseline " +
                      known_finding(folder_ / "known.yaml").string() + " --repeat 2"),
            0)
      << output();
  EXPECT_THAT(output(), HasSubstr("known finding: broken on purpose"));
  const auto results = read_results();
  EXPECT_EQ(results["summary"]["waived"], 2);
  EXPECT_TRUE(results["flaky"].empty());
}

TEST_F(RunTest, RunsTheRulesThatFailedTheLastTime) {
  const std::string state = "XDG_STATE_HOME=" + (folder_ / "state").string();
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"run", "--plugin", PLUGFEST_MUTANTS "/libnccl-net-posted_size_reported.so"});
    return await_exit(start_plugfest(arguments, folder_ / "output", {state}));
  };
  EXPECT_EQ(run({"--last-failed", "--rule", "LD-01"}), 0) << "nothing is known, so all rules run";
  EXPECT_THAT(output(), HasSubstr("no failed rule is recorded in " + (folder_ / "state").string()));
  EXPECT_FALSE(fs::exists(folder_ / "state")) << "nothing failed";
  const fs::path stale = folder_ / "state/plugfest/last-failed/0";
  fs::create_directories(stale.parent_path());
  std::ofstream(stale) << "/nowhere/libnccl-net-foo.so\nXF-01\n";
  EXPECT_EQ(run({"--rule", "XF-09,LD-01"}), 1);
  EXPECT_FALSE(fs::exists(stale)) << "its plugin does not exist";
  EXPECT_EQ(run({"--rule", "LD-02"}), 0) << "XF-09 stays failed: it did not run";
  EXPECT_EQ(run({"--last-failed", "--list"}), 0);
  EXPECT_EQ(output(), "XF-09\n");
  EXPECT_EQ(run({"--last-failed", "--rule", "LD-*"}), 2);
  EXPECT_THAT(output(),
              HasSubstr("--last-failed: none of the selected rules failed last time; those that failed: XF-09"));
  EXPECT_EQ(run({"--last-failed", "--baseline", known_finding(folder_ / "known.yaml")}), 0) << "waived";
  EXPECT_TRUE(fs::is_empty(folder_ / "state/plugfest/last-failed"));
}

TEST_F(RunTest, RanksGetTheVariablesOfTheOption) {
  EXPECT_EQ(run_rules("--plugin " PLUGFEST_MUTANTS
                      "/libnccl-net-posted_size_reported.so --rule DP-01 --env PLUGFEST_MUTANT_BASE=/nowhere.so"),
            1);
  EXPECT_THAT(output(), HasSubstr("mutant: the base plugin: /nowhere.so"));
}

TEST_F(RunTest, GroupsFailuresByCause) {
  EXPECT_EQ(run_rules("--plugin " PLUGFEST_MUTANTS "/libnccl-net-aborts_without_devices.so --rule IN-05 --strict"), 1);
  const auto causes = read_results()["runs"].at(0)["causes"];
  EXPECT_THAT(causes.at(0)["text"], HasSubstr("crashes in init at init.cc:")) << output();
  EXPECT_EQ(causes.at(0)["start"], "IN-05");
  EXPECT_EQ(causes.at(0)["rules"], std::vector<std::string>{"IN-05"});
}

TEST_F(RunTest, TheRowOfAStallNamesAnOperation) {
  EXPECT_EQ(run_rules("--plugin " PLUGFEST_MUTANTS
                      "/libnccl-net-completions_of_others_lost.so --rule TS-07 --timeout-scale 0.05"),
            1);
  EXPECT_THAT(output(),
              ContainsRegex("irecv #[0-9]+ of 1 buffer was not completed: no operation made progress for 0.5 s"));
}

TEST_F(RunTest, RepetitionsPrintNoGroups) {
  EXPECT_EQ(run_rules("--rule 'DP-*'"), 0) << output();
  EXPECT_THAT(output(), HasSubstr("DP  devices and their properties"));
  EXPECT_EQ(run_rules("--rule 'DP-*' --repeat 2"), 0) << output();
  EXPECT_THAT(output(), Not(HasSubstr("DP  devices and their properties")));
}

TEST_F(RunTest, StopsAfterFailures) {
  EXPECT_EQ(run_rules("--plugin " PLUGFEST_MUTANTS
                      "/libnccl-net-sizes_never_written.so --rule 'XF-09,XF-1?,XF-2?' --fail-fast"),
            1)
      << output();
  const auto results = read_results();
  EXPECT_GE(results["summary"]["fail"], 1);
  EXPECT_LE(results["summary"]["fail"], 3) << "rules on three paths run at once";
  EXPECT_GE(results["summary"]["skip"], 1);
  EXPECT_EQ(results["summary"]["missing"], 0);
  EXPECT_EQ(results["interrupted"], false);
}

TEST_F(RunTest, SkipsRulesWithoutTheLibraryOfTheDriver) {
  EXPECT_EQ(run_rules("--plugin " PLUGFEST_MUTANTS "/libnccl-net-needs_driver.so --rule LD-03"), 0) << output();
  EXPECT_THAT(output(), HasSubstr("the library needs libcuda.so.1, which this machine does not have"));
}

TEST_F(RunTest, EmulatesAGpuForPluginsThatNeedOne) {
  EXPECT_EQ(run_rules("--plugin " PLUGFEST_MUTANTS "/libnccl-net-needs_driver.so --emulate-gpu --rule LD-03"), 0)
      << output();
  EXPECT_THAT(output(), HasSubstr("1 pass"));
  const std::string refuses = PLUGFEST_MUTANTS "/libnccl-net-refuses_without_gpu.so";
  EXPECT_EQ(run_rules("--plugin " + refuses + " --rule IN-01,XF-06,MR-02"), 2);
  EXPECT_EQ(output(), "plugfest: " + refuses +
                          ": rank a.eth0: init() returned ncclSystemError (2); with stand-ins for a GPU the plugin "
                          "starts: add --emulate-gpu\n");
  EXPECT_EQ(run_rules("--plugin " + refuses + " --emulate-gpu --rule IN-01,XF-06,MR-02"), 0) << output();
  EXPECT_THAT(output(), HasSubstr("2 pass, 1 n/a"));
}

TEST_F(RunTest, SaysOnceThatNoGpuCanBeEmulatedForARuntimeInThePlugin) {
  const std::string plugin = PLUGFEST_MUTANTS "/libnccl-net-static_runtime.so";
  const std::string advice =
      "--emulate-gpu has no stand-in for a CUDA runtime that is linked statically into a plugin, a library or a "
      "stripped program: link it with the dynamic runtime (nvcc -cudart shared), or do not strip the program\n";
  EXPECT_EQ(run_rules("--plugin " + plugin + " --emulate-gpu --rule IN-01,XF-06"), 2);
  EXPECT_EQ(output(), "plugfest: " + plugin + ": " + advice);
  EXPECT_EQ(run_rules("--plugin " + plugin + " --rule IN-01,XF-06"), 2);
  EXPECT_EQ(output(),
            "plugfest: " + plugin + ": rank a.eth0: init() returned ncclSystemError (2); if it needs a GPU: " + advice);
}

TEST_F(RunTest, TestsTheUseOfAnEmulatedGpusMemory) {
  const std::string arguments =
      "--plugin " PLUGFEST_MUTANTS "/libnccl-net-whole_gpu_pages_only.so --rule FL-01,FL-03,FL-05,TH-05";
  EXPECT_EQ(run_rules(arguments), 0);
  EXPECT_THAT(output(), HasSubstr("needs a CUDA GPU: --emulate-gpu emulates its memory"));
  EXPECT_EQ(run_rules(arguments + " --emulate-gpu"), 0) << output();
  EXPECT_THAT(output(), HasSubstr("4 pass"));
}

TEST_F(RunTest, NamesTheStandInThatIsMissing) {
  const fs::path program = folder_ / "bin/plugfest";
  fs::create_directories(program.parent_path());
  fs::copy_file(PLUGFEST_PROGRAM, program);
  EXPECT_EQ(output_of(run_shell(program.string() + " run --emulate-gpu"), 2),
            "plugfest: --emulate-gpu: " + (folder_ / "lib/nccl/libcuda.so.1").string() +
                " is missing; in a clone, scripts/plugfest builds it\n");
}

TEST_F(RunTest, RunsACommandInAHost) {
  if (kSanitized) GTEST_SKIP() << "a library with a sanitizer cannot be preloaded into programs without it";
  EXPECT_EQ(plugfest("fabric exec -t triangle a -- sh -c 'ls /sys/class/net /sys/class/infiniband; exit 7'"), 7);
  EXPECT_THAT(output(), HasSubstr("eth0"));
  EXPECT_THAT(output(), HasSubstr("roce_eth1"));
}

}  // namespace
}  // namespace plugfest::cli
