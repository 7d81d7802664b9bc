// These tests run outside sandboxes and start programs that enter one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "fabric/netns/namespace_restriction.h"
#include "fabric/netns/sandbox.h"
#include "fabric/netns/testing/program.h"

namespace plugfest::netns {
namespace {

using testing::HasSubstr;

TEST(Sandbox, MakesTheCallerRootOfItsOwnNetwork) {
  EXPECT_EQ(output_in_sandbox("id -u"), "0\n");
  EXPECT_EQ(output_in_sandbox("ip -o link | cut -d' ' -f2; ip link add dummy-bridge type bridge && echo made"),
            "lo:\nmade\n");
  EXPECT_EQ(output_in_sandbox("cat /sys/class/net/lo/operstate >/dev/null; ip -o link show lo | grep -c LOWER_UP"),
            "1\n");
}

TEST(Sandbox, HasItsOwnProc) { EXPECT_EQ(output_in_sandbox("readlink /proc/self; echo $$ >/dev/null"), "3\n"); }

TEST(Sandbox, NestsInsideASandbox) {
  const std::string program = beside_this_test("sandbox-exec");
  EXPECT_EQ(output_in_sandbox(program + " " + program + " echo nested"), "nested\n");
}

TEST(Sandbox, ReturnsTheExitCode) {
  EXPECT_EQ(in_sandbox("exit 0").exit_code(), 0);
  EXPECT_EQ(in_sandbox("exit 42").exit_code(), 42);
}

TEST(Sandbox, ReturnsTheSignalAsAShellDoes) {
  EXPECT_EQ(in_sandbox("kill -SEGV $$").exit_code(), 128 + SIGSEGV);
  EXPECT_EQ(in_sandbox("kill -KILL $$").exit_code(), 128 + SIGKILL);
}

TEST(Sandbox, ForwardsSignals) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    Program program =
        in_sandbox("trap 'echo got; exit 5' INT TERM HUP USR1; echo ready; while :; do sleep 1000 & wait; done");
    ASSERT_EQ(program.read_line(), "ready");
    kill(program.pid(), number);
    EXPECT_EQ(program.read_line(), "got");
    EXPECT_EQ(program.exit_code(), 5);
  }
}

TEST(Sandbox, EndsWhenAForwardedSignalKillsTheProgram) {
  Program program = in_sandbox("echo ready; exec sleep 1000");
  ASSERT_EQ(program.read_line(), "ready");
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(program.exit_code(), 128 + SIGTERM);
}

TEST(Sandbox, StopsAndContinuesWithTheJob) {
  Program program = in_sandbox("echo ready; exec sleep 1000");
  ASSERT_EQ(program.read_line(), "ready");
  kill(program.pid(), SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(program.pid(), &status, WUNTRACED), program.pid());
  EXPECT_TRUE(WIFSTOPPED(status));
  kill(program.pid(), SIGCONT);
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(program.exit_code(), 128 + SIGTERM);
}

TEST(Sandbox, ReapsOrphans) {
  // The inner shell exits first and orphans its child. The child must not remain a zombie after it has exited.
  EXPECT_EQ(output_in_sandbox("orphan=$( (sleep 0 & echo $!) ); while [ -e /proc/$orphan ]; do :; done; echo reaped"),
            "reaped\n");
}

// Runs a shell script in contain_processes().
Program contained(const std::string& script) {
  return Program({beside_this_test("sandbox-exec"), "--contained", "sh", "-c", script});
}

TEST(Containment, ReturnsTheExitCode) {
  EXPECT_EQ(contained("exit 42").exit_code(), 42);
  EXPECT_EQ(contained("kill -KILL $$").exit_code(), 128 + SIGKILL);
}

TEST(Containment, ForwardsSignals) {
  Program program = contained("trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 1000 & wait; done");
  ASSERT_EQ(program.read_line(), "ready");
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(program.read_line(), "got");
  EXPECT_EQ(program.exit_code(), 5);
}

// Processes that have left the group and the session of their parent, which has exited.
constexpr const char* kStartOrphans = "for i in 1 2 3; do (setsid -f sleep 1000 >/dev/null 2>&1 </dev/null); done; ";

TEST(Containment, EndsOrphansWithTheProgram) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // this process becomes the parent of the remaining processes
  Program program = contained(std::string(kStartOrphans) + "exit 3");
  EXPECT_EQ(program.exit_code(), 3);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
}

TEST(Containment, EndsOrphansAfterDeathOfAnyProcess) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  // The program prints its id and its parent's id; the outside process is the child of this one.
  for (const char* victim : {"program", "middle", "outside"}) {
    Program program = contained(std::string(kStartOrphans) + "echo $$; echo $PPID; exec sleep 1000");
    const pid_t inside = std::stoi(program.read_line());
    const pid_t middle = std::stoi(program.read_line());
    kill(victim == std::string("program") ? inside : victim == std::string("middle") ? middle : program.pid(), SIGKILL);
    program.exit_code();
    while (waitpid(-1, nullptr, 0) > 0) continue;
    EXPECT_EQ(errno, ECHILD) << victim;
    EXPECT_NE(kill(inside, 0), 0) << victim;
  }
}

TEST(Sandbox, HasNoProcessNamespaceWhereProcCannotBeMounted) {
  // As in containers: with part of /proc hidden, the kernel refuses another /proc to a process without root's
  // capabilities. Root of an ordinary user's sandbox loses them with setpriv.
  const SandboxExecCopy copy;
  const std::string program = copy.path();
  const std::string drop = "setpriv --bounding-set=-all,+setfcap --inh-caps=-all ";
  const std::string script =
      "mount -t tmpfs -o ro hidden /proc/irq; readlink /proc/self/ns/pid; " + drop + program +
      " sh -c 'readlink /proc/self/ns/pid; setsid -f sleep 1000 >/dev/null 2>&1; exit 5'; code=$?; " +
      "cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep; exit $code";
  Program nested({program, "sh", "-c", script}, become_ordinary_user);
  const std::string outside = nested.read_line();
  EXPECT_THAT(outside, HasSubstr("pid:["));
  EXPECT_EQ(nested.read_line(), outside);
  EXPECT_EQ(nested.read_line(), "0") << "the orphan ends with the program";
  EXPECT_EQ(nested.exit_code(), 5);
}

NamespaceLimits ordinary_user() {
  NamespaceLimits limits;
  limits.max_user_namespaces = 15000;
  limits.max_network_namespaces = 15000;
  return limits;
}

TEST(NamespaceRestrictionTest, NamesAppArmor) {
  NamespaceLimits limits = ordinary_user();
  limits.apparmor_restricts = 1;
  const std::string expected =
      "user namespaces are forbidden here (AppArmor): run\n"
      "    sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0\n"
      "  or run as root";
  EXPECT_EQ(explain_restriction(SandboxStep::kUserNamespace, EPERM, limits).text(), expected);
  EXPECT_EQ(explain_restriction(SandboxStep::kIdentityMap, EPERM, limits).text(), expected);
  EXPECT_EQ(explain_restriction(SandboxStep::kNamespaces, EACCES, limits).text(), expected);
}

TEST(NamespaceRestrictionTest, NamesTheKernelSetting) {
  NamespaceLimits limits = ordinary_user();
  limits.max_user_namespaces = 0;
  EXPECT_EQ(explain_restriction(SandboxStep::kUserNamespace, ENOSPC, limits).text(),
            "user namespaces are forbidden here (user.max_user_namespaces is 0): run\n"
            "    sudo sysctl -w user.max_user_namespaces=15000\n"
            "  or run as root");
  limits = ordinary_user();
  limits.unprivileged_clone = 0;
  EXPECT_EQ(explain_restriction(SandboxStep::kUserNamespace, EPERM, limits).text(),
            "user namespaces are forbidden here (kernel.unprivileged_userns_clone is 0): run\n"
            "    sudo sysctl -w kernel.unprivileged_userns_clone=1\n"
            "  or run as root");
  limits = ordinary_user();
  limits.user_namespaces_known = false;
  EXPECT_EQ(explain_restriction(SandboxStep::kUserNamespace, EINVAL, limits).text(),
            "this kernel has no user namespaces (CONFIG_USER_NS): run as root");
}

TEST(NamespaceRestrictionTest, NamesTheReachedLimit) {
  EXPECT_EQ(
      explain_restriction(SandboxStep::kUserNamespace, ENOSPC, ordinary_user()).text(),
      "cannot create another user namespace: user.max_user_namespaces (15000) or the nesting limit (32) is reached");
  EXPECT_EQ(explain_restriction(SandboxStep::kNamespaces, ENOSPC, ordinary_user()).text(),
            "cannot create more namespaces: one of the limits user.max_{net,mnt,pid}_namespaces is reached "
            "(user.max_net_namespaces is 15000): raise it with sysctl, or end other fabrics");
}

TEST(NamespaceRestrictionTest, NamesMissingCapabilitiesOfRoot) {
  NamespaceLimits limits = ordinary_user();
  limits.root = true;
  EXPECT_EQ(explain_restriction(SandboxStep::kIdentityMap, EPERM, limits).text(),
            "user namespaces are forbidden here (this root has neither CAP_SYS_ADMIN nor CAP_SETFCAP): start the "
            "container with --privileged, or run as an ordinary user");
}

TEST(NamespaceRestrictionTest, NamesStepAndReasonOfAnUnknownCause) {
  EXPECT_EQ(explain_restriction(SandboxStep::kNamespaces, ENOMEM, ordinary_user()).text(),
            "cannot create the sandbox: mount, network and process namespaces: Cannot allocate memory");
}

TEST(NamespaceRestrictionTest, DetectsASeccompFilter) {
  const SandboxExecCopy copy;
  Program program({copy.path(), "true"}, [] {
    become_ordinary_user();
    refuse_namespaces();
  });
  EXPECT_EQ(
      program.read_rest(),
      "plugfest: user namespaces are forbidden here (seccomp filter, as containers have): start the container with "
      "--privileged, or with --security-opt seccomp=unconfined\n");
  EXPECT_EQ(program.exit_code(), 2);
}

TEST(NamespaceRestrictionTest, DetectsDisabledUserNamespaces) {
  // Root of a user namespace can lower its limit. Without capabilities, that root needs another user namespace.
  const SandboxExecCopy copy;
  const std::string program = copy.path();
  const std::string script =
      "echo 0 >/proc/sys/user/max_user_namespaces; setpriv --bounding-set=-all --inh-caps=-all " + program;
  Program nested({program, "sh", "-c", script + " true"}, become_ordinary_user);
  EXPECT_EQ(nested.read_rest(),
            "plugfest: user namespaces are forbidden here (user.max_user_namespaces is 0): run\n"
            "    sudo sysctl -w user.max_user_namespaces=15000\n"
            "  or run as root\n");
  EXPECT_EQ(nested.exit_code(), 2);
}

// The namespaces of all processes that this user may inspect, as "net:[4026531840]".
std::set<std::string> namespaces_in_use() {
  std::set<std::string> found;
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    for (const char* kind : {"net", "mnt", "pid", "user"}) {
      const auto link = std::filesystem::read_symlink(process.path() / "ns" / kind, error);
      if (!error) found.insert(link.string());
    }
  }
  return found;
}

std::vector<pid_t> descendants(pid_t ancestor) {
  std::vector<pid_t> found;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(ancestor) + "/task")) {
    std::ifstream file(thread.path() / "children");
    for (pid_t child; file >> child;) {
      found.push_back(child);
      const std::vector<pid_t> below = descendants(child);
      found.insert(found.end(), below.begin(), below.end());
    }
  }
  return found;
}

enum Victim : std::size_t { kOutside, kProcessOne, kInside };  // the three processes of a sandbox, outermost first

// Kills one of the three processes of a sandbox with a running fabric, and checks for leftovers.
void expect_nothing_left(const std::string& topology, std::size_t hosts, Victim victim) {
  // This process becomes the parent of all orphans and can wait for the exit of each.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string mounts_before = read_file("/proc/self/mountinfo");
  Program program({beside_this_test("fabric-holder"), topology});
  for (std::size_t host = 0; host < hosts; ++host) ASSERT_EQ(program.read_line(), "ready");

  std::vector<pid_t> all = descendants(program.pid());
  all.insert(all.begin(), program.pid());
  ASSERT_GE(all.size(), 3 + 2 * hosts);  // the three of the sandbox, and two in each host
  std::set<std::string> created;
  for (const pid_t pid : all) {
    for (const char* kind : {"net", "mnt", "pid", "user"}) {
      std::error_code error;
      const std::string process = "/proc/" + std::to_string(pid) + "/ns/";
      const std::string inside = std::filesystem::read_symlink(process + kind, error).string();
      const std::string outside = std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind).string();
      if (!error && inside != outside) created.insert(inside);
    }
  }
  ASSERT_GE(created.size(), 2 + 2 * hosts);  // a network and a mount namespace for each host and for the program

  kill(all[victim], SIGKILL);
  while (waitpid(-1, nullptr, 0) > 0) continue;
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(program.read_rest(), "");

  for (const pid_t pid : all) EXPECT_NE(kill(pid, 0), 0) << "process " << pid << " is left";
  const std::set<std::string> left = namespaces_in_use();
  for (const std::string& name : created) EXPECT_EQ(left.count(name), 0u) << name << " is left";
  EXPECT_EQ(read_file("/proc/self/mountinfo"), mounts_before);
}

TEST(KilledFabric, LeavesNothingAfterDeathOfTheOutsideProcess) { expect_nothing_left("triangle", 3, kOutside); }
TEST(KilledFabric, LeavesNothingAfterDeathOfProcessOne) { expect_nothing_left("triangle", 3, kProcessOne); }
TEST(KilledFabric, LeavesNothingAfterDeathOfTheProgram) { expect_nothing_left("triangle", 3, kInside); }
TEST(KilledFabric, LeavesNothingOfATree) { expect_nothing_left("fat-tree:4,rate=10Gbit", 16, kOutside); }
TEST(KilledFabric, LeavesNothingOfRails) { expect_nothing_left("rail:2,4", 4, kInside); }

}  // namespace
}  // namespace plugfest::netns
