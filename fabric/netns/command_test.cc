#include "fabric/netns/command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>

#include "fabric/netns/fabric.h"
#include "fabric/system/file.h"
#include "fabric/system/testing.h"

namespace plugfest::netns {
namespace {

// The content of a pipe until the last writer has closed it.
std::string drain(Pipe& pipe) {
  pipe.write_end.close();
  return read_all(pipe.read_end.get());
}

class Commands : public testing::Test {
 protected:
  // Standard output of a shell script, started with the other settings of `command`.
  std::string output_of(const std::string& script, Command command = {}) {
    Pipe output = make_pipe();
    command.argv = {"sh", "-c", script};
    command.stdout_fd = output.write_end.get();
    const pid_t child = fabric_.spawn("a", command);
    const std::string text = drain(output);
    EXPECT_EQ(await_exit(child), 0);
    return text;
  }

  std::string refusal(const Command& command) {
    return error_message([&] { fabric_.spawn("a", command); });
  }

  Fabric fabric_{topology::named("triangle")};
};

TEST_F(Commands, ReturnTheirExitCode) {
  EXPECT_EQ(fabric_.run("a", {"sh", "-c", "exit 42"}).exit_code, 42);
  EXPECT_EQ(fabric_.run("a", {"sh", "-c", "kill -TERM $$"}).exit_code, 128 + SIGTERM);
}

TEST_F(Commands, MergeBothOutputsAndHaveNoInput) {
  EXPECT_EQ(fabric_.run("a", {"sh", "-c", "echo one; echo two >&2; cat; echo three"}).output, "one\ntwo\nthree\n");
}

TEST_F(Commands, InheritTheEnvironmentWithChanges) {
  setenv("PLUGFEST_TEST_KEPT", "kept", 1);
  setenv("PLUGFEST_TEST_REMOVED", "set", 1);
  Command command;
  command.environment = {{"PLUGFEST_TEST_NEW", "new value"}, {"PLUGFEST_TEST_REMOVED", std::nullopt}};
  EXPECT_EQ(output_of("echo $PLUGFEST_TEST_KEPT,$PLUGFEST_TEST_NEW,${PLUGFEST_TEST_REMOVED-unset}", command),
            "kept,new value,unset\n");
}

TEST_F(Commands, AreSearchedInTheNewPath) {
  Command command;
  command.argv = {"true"};
  command.environment = {{"PATH", "/nowhere:/proc/self/exe"}};
  EXPECT_EQ(refusal(command), "host a: cannot run true: No such file or directory");
}

TEST_F(Commands, FindTheProgramsOfRoot) {
  Command command;
  command.environment = {{"PATH", "/usr/bin:/bin"}};
  EXPECT_EQ(output_of("echo $PATH; tc qdisc show dev lo", command),
            "/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin\nqdisc noqueue 0: root refcnt 2 \n");
  command.environment = {{"PATH", "/sbin:/usr/sbin:/bin"}};
  EXPECT_EQ(output_of("echo $PATH", command), "/sbin:/usr/sbin:/bin:/usr/local/sbin\n");
}

TEST_F(Commands, HaveThePassedDescriptorsOnly) {
  Pipe from_three = make_pipe();
  Pipe from_nine = make_pipe();
  const Descriptor not_passed(fcntl(from_nine.write_end.get(), F_DUPFD, 20));  // without close-on-exec
  Command command;
  command.descriptors = {{from_nine.write_end.get(), 9}, {from_three.write_end.get(), 3}};
  const std::string list = "for fd in $(seq 0 99); do if [ -e /proc/$$/fd/$fd ]; then echo -n \"$fd \"; fi; done";
  EXPECT_EQ(output_of("echo three >&3; echo nine >&9; " + list, command), "0 1 2 3 9 ");
  EXPECT_EQ(drain(from_three), "three\n");
}

TEST_F(Commands, AcceptDescriptorsWithSwappedNumbers) {
  Pipe first = make_pipe();
  Pipe second = make_pipe();
  Command command;
  // Each gets the current number of the other.
  command.descriptors = {{first.write_end.get(), second.write_end.get()},
                         {second.write_end.get(), first.write_end.get()}};
  output_of("echo to second >/proc/self/fd/" + std::to_string(first.write_end.get()), command);
  EXPECT_EQ(drain(second), "to second\n");
  EXPECT_EQ(drain(first), "");
}

TEST_F(Commands, RefuseTwoDescriptorsWithOneNumber) {
  Command command;
  command.argv = {"true"};
  command.descriptors = {{0, 5}, {1, 5}};
  EXPECT_EQ(refusal(command), "host a: cannot run true: two descriptors for number 5");
}

TEST_F(Commands, ReportWhyTheyCannotRun) {
  EXPECT_EQ(refusal({.argv = {"no-such-program"}}), "host a: cannot run no-such-program: No such file or directory");
  EXPECT_EQ(refusal({.argv = {"/no/such/program"}}), "host a: cannot run /no/such/program: No such file or directory");
  // The search continues after an inaccessible folder.
  EXPECT_EQ(refusal({.argv = {"no-such-program"}, .environment = {{"PATH", "/root/inaccessible:/usr/bin:/bin"}}}),
            "host a: cannot run no-such-program: No such file or directory");
  EXPECT_EQ(refusal({.argv = {"/etc/passwd"}}), "host a: cannot run /etc/passwd: Permission denied");
  EXPECT_EQ(refusal({.argv = {}}), "host a: cannot run a command without a program");
  EXPECT_EQ(refusal({.argv = {"true"}, .stdin_fd = 12345}),
            "host a: cannot run true: descriptors: Bad file descriptor");
  EXPECT_EQ(refusal({.argv = {"true"}, .working_directory = "/no/such/folder"}),
            "host a: cannot run true: /no/such/folder: No such file or directory");
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a failed start left a child";
}

TEST_F(Commands, StartInTheGivenOrTheCallersFolder) {
  ASSERT_EQ(chdir("/usr/share"), 0);
  EXPECT_EQ(output_of("pwd"), "/usr/share\n");
  Command command;
  command.working_directory = "/usr/lib";
  EXPECT_EQ(output_of("pwd", command), "/usr/lib\n");
}

TEST_F(Commands, StartWithoutBlockedOrIgnoredSignals) {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(output_of("grep -E 'SigBlk|SigIgn' /proc/self/status"),
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
  signal(SIGPIPE, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
}

TEST_F(Commands, CanLeadAProcessGroup) {
  Pipe output = make_pipe();
  Command command;
  command.argv = {"sh", "-c", "sleep 1000 & echo; wait"};
  command.stdout_fd = output.write_end.get();
  command.new_process_group = true;
  const pid_t child = fabric_.spawn("a", command);
  EXPECT_EQ(getpgid(child), child);
  char line_feed = 0;
  ASSERT_EQ(read(output.read_end.get(), &line_feed, 1), 1);
  kill(-child, SIGKILL);
  EXPECT_EQ(drain(output), "");  // returns after the grandchild has also closed its copy
  EXPECT_EQ(await_exit(child), kKilledBySignal + SIGKILL);
}

TEST_F(Commands, GetNoSignalsOfTheCallersGroupInTheirOwnGroup) {
  ASSERT_EQ(setpgid(0, 0), 0);
  signal(SIGUSR1, [](int) {});
  std::atomic<bool> stop = false;
  std::thread sender([&] {
    while (!stop) kill(0, SIGUSR1);
  });
  Command command;
  command.argv = {"true"};
  command.new_process_group = true;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(await_exit(fabric_.spawn("a", command)), 0);
  stop = true;
  sender.join();
  signal(SIGUSR1, SIG_DFL);
}

TEST_F(Commands, OutliveTheCallingThread) {
  pid_t child = 0;
  Pipe input = make_pipe();
  Command command;
  command.argv = {"cat"};
  command.stdin_fd = input.read_end.get();
  std::thread([&] { child = fabric_.spawn("a", command); }).join();
  input.read_end.close();
  input.write_end.close();
  EXPECT_EQ(await_exit(child), 0);  // exits at end of input, not at the exit of the thread
}

TEST_F(Commands, StartFromSeveralThreads) {
  std::vector<std::thread> threads;
  std::vector<std::string> outputs(8);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    threads.emplace_back([&, i] {
      outputs[i] = fabric_.run(std::string(1, "abc"[i % 3]), {"echo", std::to_string(i)}).output;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(outputs[i], std::to_string(i) + "\n");
}

TEST(CommandsOfAFabric, DieWithTheFabric) {
  pid_t child = 0;
  {
    Fabric fabric(topology::named("triangle"));
    child = fabric.spawn("a", {.argv = {"sleep", "1000"}});
  }
  EXPECT_EQ(await_exit(child), kKilledBySignal + SIGKILL);
}

}  // namespace
}  // namespace plugfest::netns
