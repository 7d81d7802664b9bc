// Sandboxes: namespaces, exit codes, signals. These tests run outside and start programs that enter a sandbox.
#include "fabric/netns/sandbox/sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <string>

#include "fabric/netns/testing/program.h"

namespace plugfest::netns {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_EQ(WEXITSTATUS(in_sandbox("exit 0").wait_status()), 0);
  EXPECT_EQ(WEXITSTATUS(in_sandbox("exit 42").wait_status()), 42);
}

TEST(Sandbox, ReturnsTheSignalAsAShellDoes) {
  EXPECT_EQ(WEXITSTATUS(in_sandbox("kill -SEGV $$").wait_status()), 128 + SIGSEGV);
  EXPECT_EQ(WEXITSTATUS(in_sandbox("kill -KILL $$").wait_status()), 128 + SIGKILL);
}

TEST(Sandbox, ForwardsSignals) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    Program program =
        in_sandbox("trap 'echo got; exit 5' INT TERM HUP USR1; echo ready; while :; do sleep 1000 & wait; done");
    ASSERT_EQ(program.read_line(), "ready");
    kill(program.pid(), number);
    EXPECT_EQ(program.read_line(), "got");
    EXPECT_EQ(WEXITSTATUS(program.wait_status()), 5);
  }
}

TEST(Sandbox, EndsWhenAForwardedSignalKillsTheProgram) {
  Program program = in_sandbox("echo ready; exec sleep 1000");
  ASSERT_EQ(program.read_line(), "ready");
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(WEXITSTATUS(program.wait_status()), 128 + SIGTERM);
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
  EXPECT_EQ(WEXITSTATUS(program.wait_status()), 128 + SIGTERM);
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
  EXPECT_EQ(WEXITSTATUS(contained("exit 42").wait_status()), 42);
  EXPECT_EQ(WEXITSTATUS(contained("kill -KILL $$").wait_status()), 128 + SIGKILL);
}

TEST(Containment, ForwardsSignals) {
  Program program = contained("trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 1000 & wait; done");
  ASSERT_EQ(program.read_line(), "ready");
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(program.read_line(), "got");
  EXPECT_EQ(WEXITSTATUS(program.wait_status()), 5);
}

// Processes that have left the group and the session of their parent, which has exited.
constexpr const char* kStartOrphans = "for i in 1 2 3; do (setsid -f sleep 1000 >/dev/null 2>&1 </dev/null); done; ";

TEST(Containment, EndsOrphansWithTheProgram) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // this process becomes the parent of what is left
  Program program = contained(std::string(kStartOrphans) + "exit 3");
  EXPECT_EQ(WEXITSTATUS(program.wait_status()), 3);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
}

TEST(Containment, EndsOrphansAfterDeathOfAnyProcess) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  // The program prints its id and that of its parent; the outside process is the child of this one.
  for (const char* victim : {"program", "middle", "outside"}) {
    Program program = contained(std::string(kStartOrphans) + "echo $$; echo $PPID; exec sleep 1000");
    const pid_t inside = std::stoi(program.read_line());
    const pid_t middle = std::stoi(program.read_line());
    kill(victim == std::string("program") ? inside : victim == std::string("middle") ? middle : program.pid(), SIGKILL);
    program.wait_status();
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
  EXPECT_EQ(WEXITSTATUS(nested.wait_status()), 5);
}

}  // namespace
}  // namespace plugfest::netns
