// plugfest certify and plugfest verify on the emulated hosts of a background fabric. Takes a minute, most of it for the
// time after which a silent host counts as lost.
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "harness/cli/tests/program.h"
#include "harness/cluster/archive.h"

namespace plugfest::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;

// A fabric with three hosts, and a command that enters a host instead of ssh.
class Certify : public testing::Test {
 protected:
  // `network`: YAML; "": star:3.
  explicit Certify(const std::string& network = "") {
    setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
    if (!network.empty()) write("net.yaml", network, 0600);
    const Finished up = plugfest("fabric up lab --oob --topology " + (network.empty() ? "star:3" : path("net.yaml")));
    EXPECT_EQ(up.exit_code, 0) << up.output;
    write("hosts", "h1\nh2 slots=1\n# h4\nh3\n", 0600);
    write("enter", "#!/bin/sh\nhost=$1; shift\nexec " PLUGFEST_PROGRAM " fabric exec lab $host -- \"$@\"\n", 0700);
  }
  ~Certify() override { plugfest("fabric down --all"); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void write(const std::string& name, const std::string& content, mode_t mode) const {
    std::ofstream(path(name)) << content;
    chmod(path(name).c_str(), mode);
  }

  std::string command(const std::string& arguments, const std::string& pair_seconds = "0.01") const {
    return "fabric exec lab h1 -- " PLUGFEST_PROGRAM " certify --plugin " PLUGFEST_MESH " --interface oob0 --hosts " +
           path("hosts") + " --launch-agent " + path("enter") + " -o " + path("c.tar") + " --rule CN-01" +
           " --host-seconds 60 --join-seconds 120 --load-seconds 0.02 --seed 1 --pair-seconds " + pair_seconds + " " +
           arguments;
  }

  // A file of the archive.
  std::string text_of(const std::string& name) const {
    for (const cluster::ArchiveFile& file : cluster::read_tar(content_of(path("c.tar"))))
      if (file.name == name) return file.content;
    ADD_FAILURE() << name << " is not in the archive";
    return "{}";
  }
  json file(const std::string& name) const { return json::parse(text_of(name)); }

  // "host h3", "broken h1.x h2.x", without those that are slow, which another program on the machine can cause.
  std::string suspects(bool with_slow = false) const {
    std::string all;
    const json certification = file("certification.json");
    for (const json& suspect : certification["suspects"])
      if (with_slow || suspect["kind"] != "slow")
        all += suspect["kind"].get<std::string>() + " " + suspect["subject"].get<std::string>() + "\n";
    return all;
  }

  ScratchFolder folder_;
};

TEST_F(Certify, MeasuresEachPairAndItsArchiveCanBeVerified) {
  const Finished answer = plugfest(command("--soak 0.001"));
  ASSERT_LE(answer.exit_code, 1) << answer.output;
  EXPECT_EQ(suspects(), "") << answer.output;
  const json certification = file("certification.json");
  EXPECT_EQ(certification["pairs"].size(), 3u);
  for (const json& pair : certification["pairs"]) {
    EXPECT_TRUE(pair["reached"]) << pair;
    EXPECT_GT(pair["forth_bits_per_second"], 0) << pair;
    EXPECT_GT(pair["back_bits_per_second"], 0) << pair;
    EXPECT_GT(pair["latency_p50_seconds"], 0) << pair;
  }
  EXPECT_EQ(certification["loads"].size(), 2u);
  EXPECT_EQ(certification["soaks"].size(), 2u) << "one NIC is in two pairs";
  for (const json& soak : certification["soaks"]) {
    EXPECT_GE(soak["rounds"], 5) << soak;
    EXPECT_EQ(soak["leaks"].size(), 0u) << soak;
    EXPECT_EQ(soak["series"].size(), soak["rounds"]);
  }
  EXPECT_EQ(certification["differences"].size(), 0u) << certification["differences"];
  const json results = file("results.json");
  EXPECT_EQ(results["runs"].size(), 2u) << "neighbors, and the ends of the list";
  EXPECT_EQ(results["pairs"].size(), 6u);
  EXPECT_EQ(results["certification"]["exit_code"], answer.exit_code);
  EXPECT_EQ(results["certification"]["loads"].size(), 2u);
  EXPECT_EQ(results["certification"]["soaks"].size(), 2u);
  EXPECT_EQ(results["curves"][0]["axis"], "messages");
  EXPECT_EQ(file("hosts/h2.json")["devices"][0]["name"], "roce_eth0");

  const Finished verified = plugfest("verify " + path("c.tar"));
  EXPECT_EQ(verified.exit_code, answer.exit_code) << verified.output;
  EXPECT_THAT(verified.output, AllOf(HasSubstr("3 hosts, 3 NICs, 3 pairs\n2 pairs soaked for 0.001 min\n"),
                                     HasSubstr("1 rule on 2 pairs: 2 pass")));
  std::string archive = content_of(path("c.tar"));
  archive[archive.size() / 2] = static_cast<char>(archive[archive.size() / 2] ^ 1);
  std::ofstream(path("c.tar")) << archive;
  EXPECT_EQ(plugfest("verify " + path("c.tar")).exit_code, 2);
}

TEST_F(Certify, NamesAHostThatNeverJoinsAndWhy) {
  write("hosts", "h1\nh9\nh2\n", 0600);
  EXPECT_THAT(
      output_of(plugfest(command("--skip rules,loads")), 2),
      AllOf(HasSubstr("host h9: its agent has ended: "), HasSubstr("no host \"h9\""), HasSubstr("exit code 2")));
  EXPECT_EQ(suspects(), "host h9\n");
  const json verdict = file("results.json")["certification"];
  EXPECT_EQ(verdict["exit_code"], 2);
  EXPECT_EQ(verdict["reasons"], json({"1 host lost or absent: h9"}));
  EXPECT_THAT(text_of("report.html"), HasSubstr("1 host lost or absent: h9"));
  EXPECT_EQ(plugfest("verify " + path("c.tar")).exit_code, 2);
}

TEST_F(Certify, NamesAHostThatIsKilledAndGoesOn) {
  // The agent of h3 and all that it has started are killed when the file exists.
  write("enter",
        "#!/bin/sh\nhost=$1; shift\n[ $host = h3 ] || exec " PLUGFEST_PROGRAM
        " fabric exec lab $host -- \"$@\"\nexec " PLUGFEST_PROGRAM
        " fabric exec lab h3 -- sh -c 'exec 3<&0; \"$@\" <&3 & until [ -e " +
            path("kill") + " ]; do sleep 0.05; done; kill -KILL 0' sh \"$@\"\n",
        0700);
  const pid_t child = start_plugfest(command("--skip rules,loads", "1"), path("log"));
  await_output(path("log"), "preflight: ");
  write("kill", "", 0600);
  EXPECT_EQ(await_exit(child), 2) << content_of(path("log"));
  ASSERT_TRUE(std::filesystem::exists(path("c.tar"))) << content_of(path("log"));
  EXPECT_EQ(suspects(), "host h3\n") << content_of(path("log"));
  const json certification = file("certification.json");
  for (const json& pair : certification["pairs"])
    EXPECT_TRUE(pair["one"] != "h1.roce_eth0" || pair["other"] != "h2.roce_eth0" || pair["broken"] == "") << pair;
}

// Whether a program is installed: one of sshd, mpirun.
bool has(const std::string& program) { return run_shell("PATH=$PATH:/usr/sbin command -v " + program).exit_code == 0; }

// Whether daemons that insist on root can run.
bool is_root() {
  return geteuid() == 0 && run_shell("touch /run/plugfest-test && rm /run/plugfest-test").exit_code == 0;
}

TEST_F(Certify, AgentsComeThroughSsh) {
  if (!has("sshd")) GTEST_SKIP() << "needs the package openssh-server";
  if (!is_root()) GTEST_SKIP() << "sshd needs root";
  // A server in each host, with its own keys and configuration.
  const std::string folder = folder_.path().string();
  ASSERT_EQ(
      run_shell("cd " + folder + " && for key in host user; do ssh-keygen -q -t ed25519 -N '' -f $key; done").exit_code,
      0);
  write("sshd_config",
        "Port 2222\nHostKey " + path("host") + "\nAuthorizedKeysFile " + path("user.pub") +
            "\nPidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\n",
        0600);
  write("serve",
        "#!/bin/sh\nset -e\nmount -t tmpfs -o mode=755 none /run\nmkdir /run/sshd\ncp " + path("sshd_config") +
            " /run/sshd_config\necho \"SetEnv LD_LIBRARY_PATH=$LD_LIBRARY_PATH\" >>/run/sshd_config\n"
            "exec /usr/sbin/sshd -f /run/sshd_config\n",
        0700);
  std::string config;
  for (const std::string number : {"1", "2", "3"}) {
    const Finished started = plugfest("fabric exec lab h" + number + " -- unshare -m " + path("serve") + " </dev/null");
    ASSERT_EQ(started.exit_code, 0) << started.output;
    config += "Host h" + number + "\n HostName 10.255.0." + number + "\n";
  }
  // The servers may not listen yet.
  config += "Host *\n Port 2222\n BatchMode yes\n ConnectionAttempts 100\n IdentitiesOnly yes\n IdentityFile " +
            path("user") + "\n UserKnownHostsFile " + path("known") + "\n StrictHostKeyChecking accept-new\n";
  write("ssh_config", config, 0600);
  write("enter", "#!/bin/sh\nexec ssh -F " + path("ssh_config") + " \"$@\"\n", 0700);
  const Finished answer = plugfest(command("--skip rules,loads"));
  ASSERT_LE(answer.exit_code, 1) << answer.output;
  EXPECT_EQ(suspects(), "") << answer.output;
  EXPECT_EQ(file("certification.json")["pairs"].size(), 3u);
  EXPECT_EQ(file("hosts/h2.json")["devices"][0]["name"], "roce_eth0");
}

// Programs of plugfest that run at the same time as the test.
class Daemons {
 public:
  ~Daemons() {
    for (const pid_t daemon : started_) kill(daemon, SIGTERM);
    for (const pid_t daemon : started_) await_exit(daemon);
  }
  void start(const std::string& arguments, const std::string& log) {
    started_.push_back(start_plugfest(arguments, log));
  }

 private:
  std::vector<pid_t> started_;
};

TEST_F(Certify, TasksComeThroughSrun) {
  // Other versions have other options.
  if (!has("srun") || !has("slurmctld") ||
      run_shell("PATH=$PATH:/usr/sbin slurmd -V").output.find("slurm-wlm 22.05.") == std::string::npos)
    GTEST_SKIP() << "needs the package slurm-wlm, version 22.05";
  if (!is_root()) GTEST_SKIP() << "slurmd needs root";
  for (const char* folder : {"state", "cgroup", "spool"}) std::filesystem::create_directory(path(folder));
  write("cgroup.conf", "CgroupPlugin=cgroup/v1\nCgroupMountpoint=" + path("cgroup") + "\nCgroupAutomount=no\n", 0600);
  write("slurm.conf",
        "ClusterName=lab\nSlurmctldHost=h1(10.255.0.1)\nAuthType=auth/none\nCredType=cred/none\nSlurmUser=root\n"
        "SlurmdUser=root\nStateSaveLocation=" +
            path("state") + "\nSlurmdSpoolDir=" + path("spool/%n") + "\nSlurmctldPidFile=" + path("slurmctld.pid") +
            "\nSlurmdPidFile=" + path("slurmd.%n.pid") +
            "\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n"
            "SwitchType=switch/none\nMpiDefault=none\nReturnToService=2\nSelectType=select/linear\n"
            "NodeName=h1 NodeAddr=10.255.0.1\nNodeName=h2 NodeAddr=10.255.0.2\nNodeName=h3 NodeAddr=10.255.0.3\n"
            "PartitionName=all Nodes=h1,h2,h3 Default=YES State=UP\n",
        0600);
  setenv("SLURM_CONF", path("slurm.conf").c_str(), 1);
  Daemons daemons;
  daemons.start("fabric exec lab h1 -- /usr/sbin/slurmctld -D", path("slurmctld.log"));
  for (const std::string number : {"1", "2", "3"}) {
    daemons.start("fabric exec lab h" + number + " -- /usr/sbin/slurmd -D -N h" + number,
                  path("slurmd" + number + ".log"));
  }
  const auto hosts_that_are_idle = [] { return plugfest("fabric exec lab h1 -- sinfo -h -t idle -o %D 2>&1").output; };
  wait_until([&] { return hosts_that_are_idle() == "3\n"; }, std::chrono::minutes(1));
  const Finished answer =
      plugfest("fabric exec lab h1 -- srun --no-kill --nodes=3 --ntasks-per-node=1 --chdir=" + folder_.path().string() +
               " " PLUGFEST_PROGRAM " certify --plugin " PLUGFEST_MESH " --interface oob0 --hosts " + path("hosts") +
               " --meeting " + path("meeting") + " -o " + path("c.tar") +
               " --skip rules,loads --seed 1 --pair-seconds 0.01 --join-seconds 120 --host-seconds 60");
  unsetenv("SLURM_CONF");
  const std::string log = answer.output + content_of(path("slurmctld.log")) + content_of(path("slurmd1.log"));
  ASSERT_LE(answer.exit_code, 1) << log;
  ASSERT_TRUE(std::filesystem::exists(path("c.tar"))) << log;
  EXPECT_EQ(suspects(), "") << log;
  EXPECT_EQ(file("certification.json")["pairs"].size(), 3u);
  EXPECT_EQ(file("hosts/h2.json")["devices"][0]["name"], "roce_eth0");
}

// Six hosts behind a switch. The link of h2 has a tenth of the rate of the others.
class CertifyByMpirun : public Certify {
 protected:
  CertifyByMpirun()
      : Certify(
            "defaults: {rate: 100Mbit}\nhosts: [h1, h2, h3, h4, h5, h6]\n"
            "switches: [{name: s1, subnet: 10.0.0.0/16}]\nlinks:\n"
            "  - {ends: [h1, s1]}\n  - {ends: [h2, s1], rate: 10Mbit}\n  - {ends: [h3, s1]}\n"
            "  - {ends: [h4, s1]}\n  - {ends: [h5, s1]}\n  - {ends: [h6, s1]}\n") {}
};

// Open MPI ends its job when a host dies.
TEST_F(CertifyByMpirun, NamesASlowLinkAnotherPluginAFrozenHostAndAHostThatDies) {
  if (!has("mpirun") || run_shell("mpirun --version").output.find("Open MPI) 4") == std::string::npos)
    GTEST_SKIP() << "needs the package openmpi-bin, version 4";
  std::filesystem::copy_file(PLUGFEST_MESH, path("plugin.so"));
  std::filesystem::copy_file(PLUGFEST_MESH, path("other.so"));
  std::ofstream(path("other.so"), std::ios::app) << "another version";
  std::string addresses, names;
  for (const char* number : {"1", "2", "3", "4", "5", "6"}) {
    // Names would need a server for names.
    addresses += std::string("10.255.0.") + number + " slots=1\n";
    names += std::string("h") + number + "\n";
  }
  write("addresses", addresses, 0600);
  write("hosts", names, 0600);
  write("enter",
        "#!/bin/sh\nhost=h${1##*.}; shift\nwrap='sh -c'\n[ $host != h3 ] || wrap='unshare -m " + path("with_other") +
            "'\nexec " PLUGFEST_PROGRAM " fabric exec lab $host -- $wrap \"$*\"\n",
        0700);
  write("with_other",
        "#!/bin/sh\nmount --bind " + path("other.so") + " " + path("plugin.so") + " && exec sh -c \"$1\"\n", 0700);
  // To all processes in the host, except those that wait for this one.
  write("signal",
        "#!/bin/sh\nown=' '; process=$$\nwhile [ $process -gt 1 ]; do\n"
        "  own=\"$own$process \"; process=$(sed 's/.*) [A-Z] \\([0-9]*\\) .*/\\1/' /proc/$process/stat)\ndone\n"
        "host=$(readlink /proc/self/ns/net)\nfor folder in /proc/[0-9]*; do\n"
        "  process=${folder#/proc/}\n  case $own in *\" $process \"*) continue ;; esac\n"
        "  [ \"$(readlink $folder/ns/net)\" != \"$host\" ] || kill -$1 $process\ndone\n",
        0700);
  const std::string arguments =
      "fabric exec lab h1 -- mpirun --allow-run-as-root --map-by ppr:1:node --bind-to none --hostfile " +
      path("addresses") + " --mca plm_rsh_agent " + path("enter") +
      " --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include oob0 " PLUGFEST_PROGRAM " certify --plugin " +
      path("plugin.so") + " --interface oob0 --hosts " + path("hosts") + " --meeting " + path("meeting") + " -o " +
      path("c.tar") + " --skip rules,loads --seed 1 --pair-seconds 0.5 --join-seconds 120 --host-seconds 40";
  // Open MPI keeps files of a job there.
  const pid_t child = start_plugfest(arguments, path("log"), {"TMPDIR=" + folder_.path().string()});
  const auto signal = [&](const std::string& host, const std::string& name) {
    return plugfest("fabric exec lab " + host + " -- " + path("signal") + " " + name).output;
  };
  await_output(path("log"), "preflight: ");
  std::string killed = signal("h5", "STOP");
  await_output(path("log"), "host h5 has not answered for 40 s");
  killed += signal("h4", "KILL") + signal("h5", "KILL");
  await_exit(child);
  // mpirun has ended the job, and the controller continues.
  wait_until([&] { return std::filesystem::exists(path("c.tar")); }, std::chrono::minutes(2));
  const std::string log = content_of(path("log")) + "\n--\n" + content_of(path("c.tar.log")) + killed;
  ASSERT_TRUE(std::filesystem::exists(path("c.tar"))) << log;
  EXPECT_THAT(log, AnyOf(HasSubstr("the job has ended because host h4 is lost; the certification continues"),
                         HasSubstr("the job has ended because host h5 is lost; the certification continues")));
  EXPECT_THAT(suspects(true), HasSubstr("slow h2.roce_eth0\n")) << file("certification.json")["pairs"] << log;
  EXPECT_EQ(suspects(), "host h4\nhost h5\n") << log;
  EXPECT_THAT(text_of("report.html"),
              AllOf(HasSubstr("2 hosts lost or absent: h4, h5"), HasSubstr("1 fact not equal on all hosts"),
                    ContainsRegex("parts? slow: [^\"]*h2.roce_eth0")));
  const json certification = file("certification.json");
  EXPECT_EQ(certification["hosts"][4]["problem"], "host h5 has not answered for 40 s");
  ASSERT_EQ(certification["differences"].size(), 1u) << certification["differences"];
  EXPECT_EQ(certification["differences"][0]["what"], "plugin, SHA-256");
  EXPECT_THAT(certification["differences"][0]["values"].dump(), HasSubstr("\"hosts\":[\"h3\"]"));
  std::size_t reached = 0;
  for (const json& pair : certification["pairs"]) {
    const std::string nics = pair["one"].get<std::string>() + " " + pair["other"].get<std::string>();
    if (nics.find("h4.") != std::string::npos || nics.find("h5.") != std::string::npos) continue;
    EXPECT_EQ(pair["broken"], "");
    ++reached;
  }
  EXPECT_EQ(reached, 6u);
  EXPECT_EQ(plugfest("verify " + path("c.tar")).exit_code, 2);
}

TEST_F(Certify, RefusesMeetingFilesThatItHasNotWritten) {
  // The environment that srun gives one of two tasks.
  const auto as_task = [](const char* number) {
    return [number] {
      for (const auto& [name, value] : {std::pair{"SLURM_PROCID", number},
                                        {"SLURM_STEP_NUM_TASKS", "2"},
                                        {"SLURM_STEP_NUM_NODES", "2"},
                                        {"SLURM_JOB_ID", "7"}})
        setenv(name, value, 1);
    };
  };
  const std::string meeting = path("meeting");
  write("meeting", "", 0600);
  EXPECT_EQ(
      error_of("certify --plugin " PLUGFEST_MESH " --interface lo --meeting " + meeting + " -o " + path("c.tar"),
               as_task("0")),
      "plugfest: " + meeting + ": left by an earlier run: rm " + meeting + ", or name another file with --meeting\n");
  // Others than root have only files of root that they can read.
  const std::string foreign = is_root() ? meeting : "/etc/passwd";
  if (is_root()) ASSERT_EQ(chown(meeting.c_str(), 1, 1), 0);
  EXPECT_THAT(output_of(plugfest("certify --plugin " PLUGFEST_MESH " --meeting " + foreign, as_task("1"))),
              EndsWith(": " + foreign + ": belongs to another user\n"));
}

TEST_F(Certify, RefusesWrongInputBeforeItStartsAnything) {
  // The user may not write to the current folder.
  const std::string output = " -o " + path("c.tar");
  EXPECT_THAT(error_of("certify --plugin " PLUGFEST_MESH), HasSubstr("name the hosts with --hosts FILE"));
  EXPECT_THAT(error_of("certify --hosts /nowhere" + output), HasSubstr("/nowhere: cannot read: No such file"));
  for (const auto& [content, message] : {std::pair{"h1\n", "expected at least two hosts"},
                                         {"h1\nh1\n", ":2: h1 is listed twice"},
                                         {"h1\n-oProxyCommand=x\n", ":2: \"-oProxyCommand=x\" is not a host name"}}) {
    write("hosts", content, 0600);
    EXPECT_THAT(error_of("certify --hosts " + path("hosts") + output), HasSubstr(message));
  }
  write("hosts", "h1\nh2\n", 0600);
  EXPECT_THAT(error_of("certify --interface nothing0 --hosts " + path("hosts") + output),
              HasSubstr("--interface nothing0: it has no IPv4 address; there are lo (127.0.0.1)"));
  EXPECT_THAT(error_of("certify --skip pairs --hosts " + path("hosts") + output), HasSubstr("expected rules or loads"));
  EXPECT_EQ(error_of("certify --api all --hosts " + path("hosts") + output),
            "plugfest: --api all: expected one version such as v8\n");
  for (const std::string value : {"0", "-1", "inf", "nan", "1e12"}) {
    EXPECT_THAT(error_of("certify --load-seconds " + value + output),
                HasSubstr("--load-seconds \"" + value + "\": expected a number above 0, 86400 at most"));
  }
  EXPECT_THAT(error_of("certify --agent < /dev/null"), HasSubstr("expected the controller's address and token"));
  EXPECT_THAT(error_of("certify --agent < " + path("hosts")), HasSubstr("expected an address, a port and a token"));
  EXPECT_THAT(error_of("verify /nowhere"), HasSubstr("/nowhere: cannot read: No such file or directory"));
  std::ofstream(path("huge")).close();
  std::filesystem::resize_file(path("huge"), std::uintmax_t{40} << 30);
  EXPECT_THAT(error_of("verify " + path("huge")),
              HasSubstr("42949672960 bytes: the archive of a certification has at most 1 GiB\n"));
  EXPECT_FALSE(std::filesystem::exists(path("c.tar")));
}

}  // namespace
}  // namespace plugfest::cli
