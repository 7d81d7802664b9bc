// Background fabrics: commands from fabric up to fabric down, and their errors.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A test with its own folder for background fabrics.
class BackgroundFabric : public testing::Test {
 protected:
  BackgroundFabric() { setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1); }
  ~BackgroundFabric() override { plugfest("fabric down --all"); }

  static void up(const std::string& arguments) {
    const Finished answer = plugfest("fabric up " + arguments);
    ASSERT_EQ(answer.exit_code, 0) << answer.output;
  }

  // The keeper's process in the output of `fabric list`.
  static pid_t keeper_of_only() {
    const std::string list = plugfest("fabric list").output;
    return std::stoi(list.substr(list.rfind(' ')));
  }

  // Number of files in the folder for background fabrics.
  std::size_t files() const {
    const fs::path folder = folder_ / "plugfest";
    return fs::exists(folder) ? static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {})) : 0;
  }

  ScratchFolder folder_;
};

TEST_F(BackgroundFabric, PersistsUntilFabricDown) {
  EXPECT_THAT(output_of(plugfest("fabric up lab --topology pair:mtu=1500")),
              StartsWith("lab: pair:mtu=1500, 2 hosts, 0 switches, 1 link, up in "));
  EXPECT_EQ(plugfest("fabric exec lab a -- ip link set eth0 mtu 1400").exit_code, 0);
  EXPECT_EQ(plugfest("fabric exec lab a -- cat /sys/class/net/eth0/mtu").output, "1400\n");
  EXPECT_EQ(plugfest("fabric exec a -- ls /sys/class/infiniband").output, "roce_eth0\n");
  EXPECT_THAT(plugfest("fabric list").output, StartsWith("lab "));
  EXPECT_EQ(plugfest("fabric down lab").output, "lab: down\n");
  EXPECT_EQ(plugfest("fabric list").output, "");
  EXPECT_TRUE(fs::is_empty(folder_));
}

// Runs one rank of a check of libsharp_coll in each of the first hosts. Returns their output.
std::string check_reductions(const ScratchFolder& folder, int ranks, const std::string& mode) {
  const std::string check = fmt::format(
      "cd {folder}; for i in $(seq 0 {last}); do {plugfest} fabric exec lab h$((i + 1)) -- {check} $i {ranks} "
      "{folder}/ranks {mode} >rank.$i 2>&1 || echo \"rank $i: exit code $?\" >>rank.$i & done; wait; cat rank.*; rm "
      "rank*",
      fmt::arg("last", ranks - 1), fmt::arg("plugfest", PLUGFEST_PROGRAM), fmt::arg("check", PLUGFEST_SHARP_CHECK),
      fmt::arg("ranks", ranks), fmt::arg("folder", folder.path().string()), fmt::arg("mode", mode));
  return run_shell(check).output;
}

TEST_F(BackgroundFabric, ReducesInItsSwitches) {
  for (const auto& [topology, ranks] : {std::pair("star:3", 3), std::pair("fat-tree:4", 16)}) {
    SCOPED_TRACE(topology);
    up(fmt::format("lab -t {} --reduction", topology));
    const std::string output = check_reductions(folder_, ranks, "all");
    EXPECT_THAT(output, Not(HasSubstr("exit code"))) << output;
    EXPECT_THAT(output, HasSubstr("joined"));
    const std::string table = output_of(plugfest("fabric show lab --json " + (folder_ / "lab.json").string()));
    EXPECT_THAT(table, HasSubstr("\n  aggregation node groups contributions   repeats   results     drops"));
    for (const auto& [name, node] :
         nlohmann::json::parse(content_of(folder_ / "lab.json"))["aggregation_nodes"].items()) {
      EXPECT_GT(node["contributions"], 0) << name;
      EXPECT_GT(node["results"], 0) << name;
      EXPECT_EQ(node["groups"], 0) << name << ": all ranks have left";
      EXPECT_EQ(node["drops"]["malformed"], 0) << name;
    }
    EXPECT_EQ(plugfest("fabric down lab").output, "lab: down\n");
  }
}

TEST_F(BackgroundFabric, RefusesReductionWithoutSwitches) {
  EXPECT_EQ(
      output_of(plugfest("fabric up lab -t triangle --reduction"), 2),
      "plugfest: fabric up --reduction: triangle has no switches that can reduce: choose a topology with switches "
      "of one kind, such as star:4 or fat-tree:4, whose subnets have free addresses\n");
  EXPECT_EQ(files(), 0u);
}

TEST_F(BackgroundFabric, ShowsWhichFaultsAreActiveIfAPlanIsRefused) {
  up("triangle");
  const std::string file = "/sys/class/infiniband/roce_eth0/faults", other = "/sys/class/infiniband/roce_eth1/faults";
  const auto refuse = [](const std::string& at) {
    return "; echo nonsense=3 >" + at + "; until grep -q refused " + at + "; do sleep 0.05; done";
  };
  // The keeper checks plans in the order in which they were written: when it has refused the plan of eth1, the plan
  // of eth0 is active.
  EXPECT_EQ(
      plugfest("fabric exec a -- sh -c 'echo loss=1% >" + file + refuse(other) + refuse(file) + "; cat " + file + "'")
          .output,
      "# refused: faults:1: \"nonsense=3\": unknown: expected loss=, duplicate=, reorder=, corrupt=, delay=, "
      "jitter=, seed=, direction= or device=\nloss=0.01,seed=1\n");
}

TEST_F(BackgroundFabric, ShowsCountersOfNics) {
  if (access("/usr/bin/ibv_rc_pingpong", X_OK) != 0) GTEST_SKIP() << "needs ibv_rc_pingpong, which is not installed";
  up("lab --topology pair:delay=100us");
  // Host a sends to itself. The client repeats until the server listens.
  output_of(
      plugfest("fabric exec lab a -- sh -c 'ibv_rc_pingpong -g 0 -n 20 & "
               "until ibv_rc_pingpong -g 0 -n 20 127.0.0.1; do :; done; wait' 2>&1"));
  EXPECT_THAT(output_of(plugfest("fabric show lab --json " + (folder_ / "lab.json").string())),
              AllOf(HasSubstr("packets out"), HasSubstr("\na.roce_eth0 ")));
  const nlohmann::json json = nlohmann::json::parse(content_of(folder_ / "lab.json"));
  const nlohmann::json& counters = json["devices"]["a.roce_eth0"];
  EXPECT_GE(counters["port_xmit_packets"], 40);
  EXPECT_GE(counters["delayed_packets"], 40) << "the NIC delays packets for its link";
  EXPECT_EQ(json["devices"]["b.roce_eth0"]["port_xmit_packets"], 0);
}

TEST_F(BackgroundFabric, KeepsFolderEnvironmentAndExitCodeOfACommand) {
  up("pair");
  const Finished answer = plugfest("fabric exec pair b -- sh -c 'pwd; echo $MARK; exit 7'", [] {
    setenv("MARK", "here", 1);
    if (chdir("/usr/bin") != 0) _exit(126);
  });
  EXPECT_EQ(answer.output, "/usr/bin\nhere\n");
  EXPECT_EQ(answer.exit_code, 7);
  const Finished absent = plugfest("fabric exec pair b -- no-such-program");
  EXPECT_EQ(absent.output, "plugfest: host b: cannot run no-such-program: No such file or directory\n");
  EXPECT_EQ(absent.exit_code, 127);
  EXPECT_EQ(plugfest("fabric exec pair b -- /etc/passwd").exit_code, 126);
  EXPECT_EQ(plugfest("fabric exec pair b -- sh -c 'kill -TERM $$'").exit_code, 128 + SIGTERM);
  EXPECT_EQ(plugfest("fabric exec -t pair b -- /etc/passwd").exit_code, 126);
}

TEST_F(BackgroundFabric, ReportsThatStandardOutputCannotBeWritten) {
  for (const char* command : {"fabric up pair", "fabric list", "fabric show pair", "fabric show pair --json -",
                              "run --fabric pair --rule CN-06", "fabric down pair"}) {
    EXPECT_EQ(error_of(std::string(command) + " >/dev/full"),
              "plugfest: standard output: cannot write: No space left on device\n")
        << command;
  }
  EXPECT_EQ(plugfest("fabric list").output, "");
}

TEST_F(BackgroundFabric, GivesNoOtherFileTheNumberOfAClosedStream) {
  up("pair");
  for (const char* fd : {"0", "1", "2"}) {
    const std::string file = (folder_ / "file").string();
    const std::string command =
        std::string(" a -- sh -c 'readlink /proc/self/fd/") + fd + " >" + file + "' " + fd + ">&-";
    for (const char* fabric : {"fabric exec pair", "fabric exec -t pair"}) {
      EXPECT_EQ(plugfest(fabric + command).exit_code, 0) << fabric << command;
      EXPECT_EQ(content_of(file), fd[0] == '1' ? file + '\n' : "/dev/null\n") << fabric << command;
    }
  }
  EXPECT_EQ(plugfest("run --fabric pair --rule CN-06 <&- 2>&-").exit_code, 0);
}

TEST_F(BackgroundFabric, NamesTheHostInACommand) {
  up("pair");
  const Finished here = run_shell("uname -n");
  EXPECT_EQ(plugfest("fabric exec b -- sh -c 'uname -n; echo $HOSTNAME'").output, "b\nb\n");
  EXPECT_EQ(plugfest("fabric exec b -- getent ahostsv4 b").output.substr(0, 9), "10.0.0.2 ");
  EXPECT_EQ(run_shell("uname -n").output, here.output);
}

TEST_F(BackgroundFabric, ServesRuns) {
  up("lab");
  EXPECT_THAT(output_of(plugfest("run --fabric lab --rule CN-06,XF-06")),
              AllOf(HasSubstr("triangle"), HasSubstr("2 pass")));
}

TEST_F(BackgroundFabric, IsRepairedAfterARunWithFaultsWasKilled) {
  up("lab");
  const fs::path script = folder_ / "faults.yaml";
  std::ofstream(script) << "faults:\n"
                           "  - {interface: a.eth0, mtu: 1280}\n"
                           "  - {interface: a.eth0, address: 192.168.100.77}\n"
                           "  - {interface: a.eth0, loss: 1%}\n"
                           "  - {link: a-c, do: down}\n";
  const std::string look =
      "fabric exec lab a -- sh -c 'cat /sys/class/infiniband/roce_eth0/faults 2>/dev/null; cat "
      "/sys/class/net/eth0/mtu; "
      "ip -4 -o address show eth0 | grep -o \"inet [0-9.]*\"; cat /sys/class/net/eth1/flags'";
  const Finished whole = plugfest(look);
  EXPECT_EQ(whole.output, "9000\ninet 192.168.100.1\n0x1003\n");
  EXPECT_EQ(plugfest("fabric exec lab b -- ip link set eth0 mtu 1400").exit_code, 0);
  const pid_t run = start_plugfest(
      {"run", "--fabric", "lab", "--rule", "CN-06", "--repeat", "100000", "--faults", script}, "/dev/null");
  const std::string faulty = "1280\ninet 192.168.100.77\n0x1002\n";
  EXPECT_TRUE(wait_until([&] { return plugfest(look).output.find(faulty) != std::string::npos; }));
  kill(run, SIGKILL);
  waitpid(run, nullptr, 0);
  EXPECT_TRUE(wait_until([&] { return plugfest(look).output == whole.output; })) << plugfest(look).output;
  EXPECT_EQ(plugfest("fabric exec lab b -- cat /sys/class/net/eth0/mtu").output, "1400\n")
      << "the user's setting stays";
}

TEST_F(BackgroundFabric, LetsRunsTakeTurns) {
  up("lab");
  const std::vector<std::string> endless = {"run", "--fabric", "lab", "--rule", "CN-06", "--repeat", "100000"};
  const fs::path first_output = folder_ / "first";
  const pid_t first = start_plugfest(endless, first_output);
  await_output(first_output, "pass");

  const std::string waiting = "plugfest: waiting for another run on fabric lab (pid " + std::to_string(first) + ")\n";
  const fs::path output = folder_ / "output";
  const pid_t impatient = start_plugfest(endless, output);
  await_output(output, waiting);
  kill(impatient, SIGINT);
  EXPECT_EQ(await_exit(impatient), 128 + SIGINT);

  const fs::path next_output = folder_ / "next";
  const pid_t next = start_plugfest("run --fabric lab --rule CN-06", next_output);
  await_output(next_output, waiting);
  kill(first, SIGKILL);
  EXPECT_EQ(await_exit(first), 128 + SIGKILL);
  EXPECT_EQ(await_exit(next), 0) << content_of(next_output);
  EXPECT_THAT(content_of(next_output), AllOf(StartsWith(waiting), HasSubstr("1 pass")));
}

TEST_F(BackgroundFabric, EndsARunThatWaitsForItsTurnOnFabricDown) {
  up("lab");
  const fs::path turn = folder_ / "plugfest" / "lab.turn";
  const int holder = open(turn.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(holder, LOCK_EX), 0);
  const fs::path output = folder_ / "output";
  const pid_t run = start_plugfest("run --fabric lab --rule CN-06", output);
  await_output(output, "plugfest: waiting for another run on fabric lab\n");
  EXPECT_EQ(plugfest("fabric down lab").exit_code, 0);
  close(holder);
  EXPECT_EQ(await_exit(run), 2);
  EXPECT_THAT(content_of(output), EndsWith("\nplugfest: fabric lab was removed before this run's turn\n"));
  EXPECT_EQ(files(), 0u);
}

TEST_F(BackgroundFabric, KeepsItsTopologyWhenTheFileChanges) {
  const fs::path file = folder_ / "lab.yaml";
  std::ofstream(file) << "hosts: [x, y]\nlinks:\n  - {ends: [x, y]}\n";
  up(file.string());
  fs::remove(file);
  EXPECT_EQ(plugfest("fabric exec lab y -- true").exit_code, 0);
  EXPECT_THAT(plugfest("fabric list").output, HasSubstr(file.string()));
}

TEST_F(BackgroundFabric, EndsItsProcessesOnFabricDown) {
  up("pair");
  const fs::path fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const pid_t child = start_plugfest(
      {"fabric", "exec", "a", "--", "sh", "-c", "exec >" + fifo.string() + "; echo ready; exec sleep 1000"},
      "/dev/null");
  std::ifstream ready(fifo);
  std::string line;
  std::getline(ready, line);
  EXPECT_EQ(line, "ready");
  EXPECT_EQ(plugfest("fabric down pair").exit_code, 0);
  EXPECT_FALSE(std::getline(ready, line));  // the last writer has ended
  EXPECT_EQ(await_exit(child), 128 + SIGKILL);
}

TEST_F(BackgroundFabric, ForwardsEachSignalToACommand) {
  up("pair");
  const fs::path fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const pid_t child =
      start_plugfest({"fabric", "exec", "a", "--", "sh", "-c",
                      "exec >" + fifo.string() +
                          "; trap 'echo interrupted' INT; trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done"},
                     "/dev/null");
  std::ifstream output(fifo);
  std::string line;
  std::getline(output, line);
  EXPECT_EQ(line, "ready");
  for (int i = 0; i < 2; ++i) {
    kill(child, SIGINT);
    std::getline(output, line);
    EXPECT_EQ(line, "interrupted");
  }
  kill(child, SIGTERM);
  EXPECT_EQ(await_exit(child), 3);
}

TEST_F(BackgroundFabric, ShowsItsCurrentState) {
  up("pair");
  EXPECT_EQ(plugfest("fabric exec a -- ip link set eth0 down").exit_code, 0);
  const std::string answer = output_of(plugfest("fabric show pair --json " + (folder_ / "show.json").string()));
  EXPECT_THAT(answer, HasSubstr("  a.eth0        down       10.0.0.1/30        b.eth0 "));
  EXPECT_THAT(answer, HasSubstr("  b.eth0        no carrier 10.0.0.2/30        a.eth0 "));
  EXPECT_THAT(answer, HasSubstr("b.roce_eth0"));
  EXPECT_THAT(content_of(folder_ / "show.json"), HasSubstr("\"state\": \"no carrier\""));
}

TEST_F(BackgroundFabric, CapturesThePacketsOfAHost) {
  up("pair");
  const fs::path file = folder_ / "packets";
  const fs::path output = folder_ / "output";
  const pid_t capture = start_plugfest({"fabric", "pcap", "pair", "a", "-w", file}, output);
  await_output(output, "capturing at a until Ctrl-C\n");
  EXPECT_EQ(plugfest("fabric exec b -- bash -c 'echo 16-bytes-and-more >/dev/udp/10.0.0.1/4791'").exit_code, 0);
  EXPECT_EQ(plugfest("fabric exec b -- bash -c 'echo another port >/dev/udp/10.0.0.1/4792'").exit_code, 0);
  await_output(file, "16-bytes-and-more");  // delivery is asynchronous
  kill(capture, SIGINT);
  EXPECT_EQ(await_exit(capture), 0);
  EXPECT_THAT(content_of(output), EndsWith("\n1 packet\n"));
  EXPECT_THAT(content_of(file), HasSubstr("eth0"));
  EXPECT_THAT(plugfest("fabric pcap pair a -w /dev/full").output,
              HasSubstr("plugfest: /dev/full: cannot write: No space left on device"));
}

TEST_F(BackgroundFabric, RefusesNamesThatAreTakenOrInvalid) {
  up("pair");
  EXPECT_EQ(error_of("fabric up pair"), "plugfest: fabric pair is up already (pair): run " PLUGFEST_PROGRAM
                                        " fabric down pair, or use another name\n");
  EXPECT_EQ(error_of("fabric down lab"), "plugfest: no fabric \"lab\": the fabrics that are up are pair\n");
  EXPECT_EQ(error_of("fabric exec lab a -- true"), "plugfest: no fabric \"lab\": the fabrics that are up are pair\n");
  EXPECT_EQ(error_of("run --fabric lab"), "plugfest: no fabric \"lab\": the fabrics that are up are pair\n");
  EXPECT_THAT(error_of("fabric exec pair c -- true"), HasSubstr("no host \"c\" in topology pair: its hosts are a, b"));
  for (const char* hostile : {"../lab", ".lab", "-- -lab", "'a\nb'", "a/b"})
    EXPECT_THAT(error_of(std::string("fabric up ") + hostile), HasSubstr("invalid fabric name ")) << hostile;
  EXPECT_THAT(error_of("fabric up " + std::string(65, 'x')), HasSubstr("at most 64 characters"));
  EXPECT_THAT(error_of("fabric up ''"), HasSubstr("must not be empty"));
}

TEST_F(BackgroundFabric, MustBeNamedIfSeveralAreUp) {
  up("one --topology pair");
  up("two --topology pair");
  EXPECT_EQ(error_of("fabric exec a -- true"), "plugfest: 2 fabrics are up: name one of one, two\n");
  EXPECT_EQ(plugfest("fabric exec two a -- true").exit_code, 0);
  EXPECT_EQ(plugfest("fabric down --all").output, "one: down\ntwo: down\n");
}

TEST_F(BackgroundFabric, IsCleanedUpAfterItsKeeperWasKilled) {
  up("pair");
  const pid_t keeper = keeper_of_only();
  kill(keeper, SIGKILL);
  // The last process of the keeper releases the lock.
  const int record = open((folder_ / "plugfest" / "pair.fabric").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(record, LOCK_EX), 0);
  close(record);
  const std::string gone = ": its keeper, process " + std::to_string(keeper) + ", had been killed\n";
  EXPECT_EQ(plugfest("fabric down pair").output,
            "plugfest: removed fabric pair" + gone + "plugfest: no fabric \"pair\": none is up\n");
  EXPECT_EQ(files(), 0u);
  up("pair");
}

TEST_F(BackgroundFabric, CanBeRemovedWithADamagedRecord) {
  up("pair");
  up("lab");
  up("ring:3");
  const auto damage = [&](const char* name, const char* content) {
    std::ofstream(folder_ / "plugfest" / name) << content;
  };
  damage("pair.fabric", "{\"keeper\": \"me\"}");
  damage("ring:3.fabric",
         R"({"topology": "x", "specification": "rong:3", "out_of_band": false, "keeper": 1, "since": 0})");
  damage("not a name.fabric", "");
  damage("killed.fabric", "[]");
  const std::string problem = "fabric pair: its record is damaged; " PLUGFEST_PROGRAM " fabric down pair removes it\n";
  EXPECT_THAT(output_of(plugfest("fabric list")),
              AllOf(StartsWith("lab "), HasSubstr(problem),
                    HasSubstr("fabric ring:3: no topology \"rong\": did you mean ring:N?; ")));
  EXPECT_EQ(plugfest("fabric exec lab a -- true").exit_code, 0);
  EXPECT_EQ(error_of("fabric exec pair a -- true"), "plugfest: " + problem);
  const nlohmann::json json = nlohmann::json::parse(plugfest("fabric list --json").output);
  ASSERT_EQ(json.size(), 3u);
  EXPECT_EQ(json[0]["name"], "lab");
  EXPECT_EQ(json[0]["hosts"], 3);
  EXPECT_EQ(json[1]["problem"].get<std::string>() + '\n', problem);
  EXPECT_EQ(plugfest("fabric down pair lab").output, "pair: down\nlab: down\n");
  EXPECT_EQ(plugfest("fabric down --all").output, "ring:3: down\n");
  fs::remove(folder_ / "plugfest" / "not a name.fabric");
  EXPECT_EQ(files(), 0u);
}

TEST_F(BackgroundFabric, IsNotRemovedFromInsideAHost) {
  if (plugfest("fabric exec -t pair a -- sh -c 'test $$ -lt 100'").exit_code != 0)
    GTEST_SKIP() << "needs a process namespace, which this container forbids";
  up("pair");
  EXPECT_EQ(output_of(plugfest("fabric exec pair a -- " PLUGFEST_PROGRAM " fabric down --all"), 2),
            "plugfest: fabric pair: its keeper is not visible here: type fabric down outside fabric exec\n");
  EXPECT_EQ(plugfest("fabric down pair").output, "pair: down\n");
}

TEST_F(BackgroundFabric, SaysWhenItsSocketIsMissing) {
  up("pair");
  fs::remove(folder_ / "plugfest" / "pair.socket");
  const std::string path = (folder_ / "plugfest").string();
  EXPECT_EQ(error_of("fabric down pair"),
            "plugfest: fabric pair: no socket in " + path + ": remove pair.fabric there, which ends the keeper\n");
  const int record = open((folder_ / "plugfest" / "pair.fabric").c_str(), O_RDONLY | O_CLOEXEC);
  fs::remove(folder_ / "plugfest" / "pair.fabric");
  EXPECT_EQ(flock(record, LOCK_EX), 0);
  close(record);
}

TEST_F(BackgroundFabric, IsNotNamedByAMisspeltTopology) {
  const std::string end = "; add --topology TOPOLOGY to give a fabric this name\n";
  EXPECT_EQ(error_of("fabric up fat-tre:4"),
            "plugfest: fabric up fat-tre:4: no topology \"fat-tre\": did you mean fat-tree:4?" + end);
  EXPECT_EQ(error_of("fabric up triangel"),
            "plugfest: fabric up triangel: no topology \"triangel\": did you mean triangle?" + end);
  EXPECT_EQ(error_of("fabric up lab:4"), "plugfest: fabric up lab:4: no topology \"lab\"" + end);
  EXPECT_EQ(plugfest("fabric list").output, "");
  up("test");
  up("fat-tre:4 --topology pair");
}

TEST_F(BackgroundFabric, EndsWhenItsRecordIsRemoved) {
  up("pair");
  const int record = open((folder_ / "plugfest" / "pair.fabric").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(record, 0);
  fs::remove_all(folder_ / "plugfest");
  EXPECT_EQ(flock(record, LOCK_EX), 0);  // released by the last process of the keeper
  close(record);
}

TEST_F(BackgroundFabric, ReportsMissingResources) {
  EXPECT_THAT(error_of("fabric up star:300",
                       [] {
                         const rlimit few = {64, 64};
                         setrlimit(RLIMIT_NOFILE, &few);
                       }),
              HasSubstr("topology star:300 needs 729 file descriptors and the limit is 64"));
  EXPECT_EQ(files(), 0u);
  // The limit of the file size simulates a full disk.
  EXPECT_THAT(error_of("fabric up pair",
                       [] {
                         const rlimit none = {0, 0};
                         setrlimit(RLIMIT_FSIZE, &none);
                         signal(SIGXFSZ, SIG_IGN);
                       }),
              HasSubstr("pair.fabric: cannot write: File too large"));
  EXPECT_EQ(files(), 0u);
}

TEST_F(BackgroundFabric, RefusesAFolderThatOthersMayEnter) {
  fs::create_directory(folder_ / "plugfest");
  fs::permissions(folder_ / "plugfest", fs::perms::all);
  EXPECT_THAT(error_of("fabric up pair"), HasSubstr("other users have access"));
  fs::remove(folder_ / "plugfest");
  fs::create_directory_symlink("/tmp", folder_ / "plugfest");
  EXPECT_THAT(error_of("fabric up pair"), HasSubstr("cannot open the folder for background fabrics"));
}

}  // namespace
}  // namespace plugfest::cli
