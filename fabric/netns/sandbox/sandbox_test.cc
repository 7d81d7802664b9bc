// What a sandbox passes on, what it leaves behind (nothing), and what it says where it is barred. These tests run
// outside: they start programs that enter one.
#include "fabric/netns/sandbox/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "fabric/netns/sandbox/namespace_restriction.h"
#include "fabric/system/descriptor.h"

namespace plugfest::netns {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string beside_this_test(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

// A program with its standard output and error in a pipe; killed at the end of a test that has failed to wait for it.
class Program {
 public:
  explicit Program(
      std::vector<std::string> argv, const std::function<void()>& before_exec = [] {}) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    output_ = Descriptor(ends[0]);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      before_exec();
      std::vector<char*> arguments;
      for (std::string& argument : argv) arguments.push_back(argument.data());
      arguments.push_back(nullptr);
      execv(arguments[0], arguments.data());
      _exit(126);
    }
    close(ends[1]);
  }

  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (waited_) return;
    kill(pid_, SIGKILL);
    wait_status();
  }

  pid_t pid() const { return pid_; }

  std::string read_line() {
    std::string line;
    for (char c; read(output_.get(), &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }

  std::string read_rest() {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = read(output_.get(), buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  }

  int wait_status() {
    int status = -1;
    waitpid(pid_, &status, 0);
    waited_ = true;
    return status;
  }

 private:
  Descriptor output_;
  pid_t pid_ = -1;
  bool waited_ = false;
};

Program in_sandbox(const std::string& script) {
  return Program({beside_this_test("sandbox-exec"), "sh", "-c", script});
}

std::string output_in_sandbox(const std::string& script) {
  Program program = in_sandbox(script);
  const std::string output = program.read_rest();
  EXPECT_EQ(program.wait_status(), 0);
  return output;
}

void become_ordinary_user() {
  constexpr unsigned kNobody = 65534;
  if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) _exit(125);
}

TEST(Sandbox, MakesTheCallerRootOverItsOwnNetwork) {
  EXPECT_EQ(output_in_sandbox("id -u"), "0\n");
  EXPECT_EQ(output_in_sandbox("ip -o link | cut -d' ' -f2; ip link add dummy-bridge type bridge && echo made"),
            "lo:\nmade\n");
  EXPECT_EQ(output_in_sandbox("cat /sys/class/net/lo/operstate >/dev/null; ip -o link show lo | grep -c LOWER_UP"),
            "1\n");
}

TEST(Sandbox, HasAProcOfItsOwn) { EXPECT_EQ(output_in_sandbox("readlink /proc/self; echo $$ >/dev/null"), "3\n"); }

TEST(Sandbox, FitsIntoASandbox) {
  const std::string program = beside_this_test("sandbox-exec");
  EXPECT_EQ(output_in_sandbox(program + " " + program + " echo nested"), "nested\n");
}

TEST(Sandbox, GivesTheExitCode) {
  EXPECT_EQ(WEXITSTATUS(in_sandbox("exit 0").wait_status()), 0);
  EXPECT_EQ(WEXITSTATUS(in_sandbox("exit 42").wait_status()), 42);
}

TEST(Sandbox, GivesTheSignalAsAShellDoes) {
  EXPECT_EQ(WEXITSTATUS(in_sandbox("kill -SEGV $$").wait_status()), 128 + SIGSEGV);
  EXPECT_EQ(WEXITSTATUS(in_sandbox("kill -KILL $$").wait_status()), 128 + SIGKILL);
}

TEST(Sandbox, PassesSignalsOn) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    Program program =
        in_sandbox("trap 'echo got; exit 5' INT TERM HUP USR1; echo ready; while :; do sleep 1000 & wait; done");
    ASSERT_EQ(program.read_line(), "ready");
    kill(program.pid(), number);
    EXPECT_EQ(program.read_line(), "got");
    EXPECT_EQ(WEXITSTATUS(program.wait_status()), 5);
  }
}

TEST(Sandbox, EndsByASignalThatTheProgramDoesNotHandle) {
  Program program = in_sandbox("echo ready; exec sleep 1000");
  ASSERT_EQ(program.read_line(), "ready");
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(WEXITSTATUS(program.wait_status()), 128 + SIGTERM);
}

TEST(Sandbox, StopsAndGoesOnWithTheJob) {
  Program program = in_sandbox("echo ready; exec sleep 1000");
  ASSERT_EQ(program.read_line(), "ready");
  kill(program.pid(), SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(program.pid(), &status, WUNTRACED), program.pid());
  EXPECT_TRUE(WIFSTOPPED(status));
  kill(program.pid(), SIGCONT);
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(WEXITSTATUS(program.wait_status()), 128 + SIGTERM);
}

TEST(Sandbox, ReapsOrphans) {
  // The middle shell ends at once; its child, ended in turn, must not stay a zombie. It ends when the pipe's writer
  // closes.
  EXPECT_EQ(output_in_sandbox("orphan=$( (sleep 0 & echo $!) ); while [ -e /proc/$orphan ]; do :; done; echo reaped"),
            "reaped\n");
}

TEST(Sandbox, DoesWithoutAProcessNamespaceWhereProcCannotBeMounted) {
  // As containers do: with part of /proc hidden, who lacks the capabilities of root may not mount another. In a sandbox
  // of an ordinary user even its root, once he has dropped them, is in that position.
  const std::string program = beside_this_test("sandbox-exec");
  const std::string drop = "setpriv --bounding-set=-all,+setfcap --inh-caps=-all ";
  const std::string script = "mount -t tmpfs -o ro hidden /proc/irq; readlink /proc/self/ns/pid; " + drop + program +
                             " sh -c 'readlink /proc/self/ns/pid; exit 5'; exit $?";
  Program nested({program, "sh", "-c", script}, become_ordinary_user);
  const std::string outside = nested.read_line();
  EXPECT_THAT(outside, HasSubstr("pid:["));
  EXPECT_EQ(nested.read_line(), outside);
  EXPECT_EQ(WEXITSTATUS(nested.wait_status()), 5);
}

// Namespaces that processes which we may look at are in: "net:[4026531840]".
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

// Process ids of all descendants of `ancestor`.
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

std::string mounts() {
  std::ifstream file("/proc/self/mountinfo");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

enum Victim : std::size_t { kOutside, kProcessOne, kInside };  // the three processes of a sandbox, from the outermost

// Kills one of the processes that hold a fabric in which processes run, and looks for what is left.
void expect_nothing_left(const std::string& topology, std::size_t hosts, Victim victim) {
  // What loses its parent comes to us, so that we can wait for the end of every last process instead of guessing when
  // it comes.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string mounts_before = mounts();
  Program program({beside_this_test("fabric-holder"), topology});
  for (std::size_t host = 0; host < hosts; ++host) ASSERT_EQ(program.read_line(), "ready");

  std::vector<pid_t> all = descendants(program.pid());
  all.insert(all.begin(), program.pid());
  ASSERT_GE(all.size(), 3 + 2 * hosts);  // the three, and two in each host
  std::set<std::string> made;
  for (const pid_t pid : all) {
    for (const char* kind : {"net", "mnt", "pid", "user"}) {
      std::error_code error;
      const std::string process = "/proc/" + std::to_string(pid) + "/ns/";
      const std::string inside = std::filesystem::read_symlink(process + kind, error).string();
      const std::string ours = std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind).string();
      if (!error && inside != ours) made.insert(inside);
    }
  }
  ASSERT_GE(made.size(), 2 + 2 * hosts);  // a network and a mount namespace for each host and for the program

  kill(all[victim], SIGKILL);
  while (waitpid(-1, nullptr, 0) > 0) continue;
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(program.read_rest(), "");

  for (const pid_t pid : all) EXPECT_NE(kill(pid, 0), 0) << "process " << pid << " is left";
  const std::set<std::string> left = namespaces_in_use();
  for (const std::string& one : made) EXPECT_EQ(left.count(one), 0u) << one << " is left";
  EXPECT_EQ(mounts(), mounts_before);
}

TEST(KilledFabric, LeavesNothingWhenTheOutsideProcessDies) { expect_nothing_left("triangle", 3, kOutside); }
TEST(KilledFabric, LeavesNothingWhenProcessOneDies) { expect_nothing_left("triangle", 3, kProcessOne); }
TEST(KilledFabric, LeavesNothingWhenTheProgramDies) { expect_nothing_left("triangle", 3, kInside); }
TEST(KilledFabric, LeavesNothingOfATree) { expect_nothing_left("fat-tree:4,rate=10Gbit", 16, kOutside); }
TEST(KilledFabric, LeavesNothingOfRails) { expect_nothing_left("rail:2,4", 4, kInside); }

// What bars a sandbox, in words.

NamespaceLimits ordinary_user() {
  NamespaceLimits limits;
  limits.max_user_namespaces = 15000;
  limits.max_network_namespaces = 15000;
  return limits;
}

TEST(BarredSandbox, NamesUbuntusRestriction) {
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

TEST(BarredSandbox, NamesTheSettingsOfTheKernel) {
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

TEST(BarredSandbox, NamesTheLimitThatIsReached) {
  EXPECT_EQ(explain_restriction(SandboxStep::kUserNamespace, ENOSPC, ordinary_user()).text(),
            "no further user namespace: user.max_user_namespaces (15000) or the depth of nesting (32) is reached");
  EXPECT_EQ(explain_restriction(SandboxStep::kNamespaces, ENOSPC, ordinary_user()).text(),
            "no further namespaces: one of the limits user.max_{net,mnt,pid}_namespaces is reached "
            "(user.max_net_namespaces is 15000)");
}

TEST(BarredSandbox, NamesTheContainersRoot) {
  NamespaceLimits limits = ordinary_user();
  limits.root = true;
  EXPECT_EQ(explain_restriction(SandboxStep::kIdentityMap, EPERM, limits).text(),
            "user namespaces are forbidden here (this root has neither CAP_SYS_ADMIN nor CAP_SETFCAP): start the "
            "container with "
            "--privileged, or run as an ordinary user");
}

TEST(BarredSandbox, SaysAtLeastTheStepAndTheReason) {
  EXPECT_EQ(explain_restriction(SandboxStep::kNamespaces, ENOMEM, ordinary_user()).text(),
            "cannot make the sandbox: mount, network and process namespaces: Cannot allocate memory");
}

// The real thing: the filter that container runtimes put on, which refuses user namespaces with EPERM.
void refuse_unshare() {
  sock_filter program[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_unshare},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  sock_fprog filter = {4, program};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

TEST(BarredSandbox, SeesTheFilterOfAContainer) {
  Program program({beside_this_test("sandbox-exec"), "true"}, [] {
    become_ordinary_user();
    refuse_unshare();
  });
  EXPECT_EQ(
      program.read_rest(),
      "plugfest: user namespaces are forbidden here (seccomp filter, as containers have): start the container with "
      "--privileged, or with --security-opt seccomp=unconfined\n");
  EXPECT_EQ(WEXITSTATUS(program.wait_status()), 2);
}

TEST(BarredSandbox, SeesThatUserNamespacesAreTurnedOff) {
  // Root of a user namespace may lower the limit for it. There the one user is root, and without capabilities he needs
  // another.
  const std::string program = beside_this_test("sandbox-exec");
  const std::string script =
      "echo 0 >/proc/sys/user/max_user_namespaces; setpriv --bounding-set=-all --inh-caps=-all " + program;
  Program nested({program, "sh", "-c", script + " true"}, become_ordinary_user);
  EXPECT_EQ(nested.read_rest(),
            "plugfest: user namespaces are forbidden here (user.max_user_namespaces is 0): run\n"
            "    sudo sysctl -w user.max_user_namespaces=15000\n"
            "  or run as root\n");
  EXPECT_EQ(WEXITSTATUS(nested.wait_status()), 2);
}

}  // namespace
}  // namespace plugfest::netns
