// Ranks whose plugin hangs, crashes, exits or overwrites the harness's memory; ranks end with the controller.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fabric/system/testing.h"
#include "harness/control/call.h"
#include "harness/control/process/capture.h"
#include "harness/control/rank_process.h"
#include "harness/control/toy_session.h"
#include "harness/wire/channel.h"

namespace plugfest::control {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

template <typename Error, typename Action>
Error caught(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("nothing was thrown");
}

// A rank with a call that hangs.
struct HangingRank {
  ToySession toy{"hang in connect", short_timeout()};
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  Listener listener = rank.listen(Device{0});
  Connect connect = rank.connect(Device{0}, listener.handle());
  Started<PointerOutcome> call = connect.start_poll();
};

TEST(Failure, ReportsACallThatHangs) {
  HangingRank hanging;
  Rank& rank = hanging.rank;
  EXPECT_EQ(rank.devices(), 1) << "other threads answer while one hangs";
  const Hung hung = caught<Hung>([&] { hanging.call.get(); });
  EXPECT_STREQ(hung.what(), "rank a.eth0: connect(device 0) did not return within 1 s");
  EXPECT_EQ(hung.call(), "connect(device 0)");
  EXPECT_EQ(hung.rank(), "a.eth0");
  ASSERT_GE(hung.stack().size(), 2u);
  EXPECT_THAT(hung.stack().front(), MatchesRegex("in system call (pause|ppoll)"));
  EXPECT_THAT(hung.stack().back(), HasSubstr("(libtoy-plugin.so)"));
  EXPECT_TRUE(rank.reaped());
  EXPECT_THAT(hanging.lease.evidence().ranks[0].last_calls.back(), HasSubstr("connect(device 0) → did not return"));
}

TEST(Failure, ARankThatTheSignalOfTheRunEndsIsInterrupted) {
  const Descriptor stop(eventfd(0, EFD_CLOEXEC));
  ToySession toy("", {.stop_fd = stop.get()});
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  const std::string state = fmt::format("/proc/{}/stat", rank.pid());
  kill(rank.pid(), SIGTERM);
  const std::jthread later([&] {
    // The controller may have reaped the rank by then.
    wait_until([&] {
      std::string line;
      return !std::getline(std::ifstream(state), line) || line.find(") Z ") != std::string::npos;
    });
    eventfd_write(stop.get(), 1);
  });
  EXPECT_THROW(rank.devices(), Interrupted);
}

Hung hang_of(ToySession& toy, bool in_listen, bool retransmits = false) {
  Lease lease = toy.session.lease();
  if (retransmits) lease.wait_for_retransmissions();
  Rank rank = lease.rank("a.eth0");
  if (in_listen) return caught<Hung>([&] { rank.listen(Device{0}); });
  Connect connect = rank.connect(Device{0}, {});
  return caught<Hung>([&] { connect.poll(); });
}

TEST(Failure, CutsShortCallsThatAreBlockedWhereAnotherHasHung) {
  ToySession toy("hang in listen and connect", {.call_seconds = 0.5, .blocked_seconds = 0.02});
  for (int i = 0; i < HangPlaces::kHangs; ++i) EXPECT_FALSE(hang_of(toy, false).cut_short());
  const Hung cut = hang_of(toy, false);
  EXPECT_TRUE(cut.cut_short());
  EXPECT_STREQ(cut.what(),
               "rank a.eth0: connect(device 0) did not return within 0.02 s: cut short, since another call hung at "
               "this place for 0.5 s");
  EXPECT_THAT(place_in_plugin(cut.stack(), PLUGFEST_TOY_PLUGIN), MatchesRegex("toy_plugin.cc:[0-9]+"));
  EXPECT_FALSE(hang_of(toy, true).cut_short()) << "no call has hung at this place";
  EXPECT_TRUE(hang_of(toy, true).cut_short()) << "one call has hung at this place";
  EXPECT_THAT(hang_of(toy, false, true).what(), HasSubstr("connect(device 0) did not return within 0.16 s: cut short"));
}

TEST(Failure, GivesFullTimeToCallsThatRunOccasionally) {
  ToySession toy("sleep in connect", {.call_seconds = 0.5, .blocked_seconds = 0.02});
  for (int i = 0; i <= HangPlaces::kHangs; ++i) EXPECT_FALSE(hang_of(toy, false).cut_short());
}

// A clock for a machine on which the thread of `rank` always waits for a processor. `proc`: a folder with the format
// of /proc.
std::shared_ptr<LoadClock> clock_of_busy_machine(const std::filesystem::path& proc, const Rank& rank) {
  const std::filesystem::path thread = proc / "1";
  std::filesystem::create_directories(proc / std::to_string(rank.pid()) / "task" / "1");
  std::filesystem::create_directories(thread);
  std::ofstream(thread / "schedstat") << "0 0 0";
  std::ofstream(thread / "stat") << "1 (rank) R";
  return std::make_shared<LoadClock>(LoadClock::Own::kThread, proc);
}

TEST(Failure, WaitsLongerForARankThatGetsNoProcessor) {
  const ScratchFolder proc;
  ToySession toy("slow connect", {.call_seconds = 0.2});
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  rank.rank_process()->use_clock(clock_of_busy_machine(proc, rank));
  Listener listener = rank.listen(Device{0});
  Connect connect = rank.connect(Device{0}, listener.handle());
  EXPECT_NO_THROW(connect.poll()) << "the call takes 0.5 s";
}

TEST(Failure, EndsAHungRankThatGetsNoProcessor) {
  const ScratchFolder proc;
  ToySession toy("hang in connect", {.call_seconds = 0.12});
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0", {.state = RankState::kBare});
  rank.rank_process()->use_clock(clock_of_busy_machine(proc, rank));
  rank.load();  // the clock is slow from 0.1 s on, so loading may take longer than 0.12 s
  rank.init();
  Listener listener = rank.listen(Device{0});
  Connect connect = rank.connect(Device{0}, listener.handle());
  EXPECT_THROW(connect.poll(), Hung);
}

TEST(Failure, AStallLimitNeedsSeveralTurnsToExpire) {
  StallLimit limit(std::make_shared<LoadClock>(LoadClock::Own::kThread), -1);
  int turns = 1;
  while (!limit.expired()) ++turns;
  EXPECT_GT(turns, 10);
}

TEST(Failure, ReportsACallThatCrashes) {
  PairWithBuffer pair("crash in isend");
  const Crashed crashed = caught<Crashed>([&] { pair.ab.send.isend(pair.buffer, 3); });
  EXPECT_THAT(crashed.what(),
              MatchesRegex("rank a.eth0: isend\\(comm 0x[0-9a-f]+, 100 bytes, tag 3\\) crashed: SIGSEGV "
                           "at address 0x10"));
  EXPECT_EQ(crashed.signal(), SIGSEGV);
  EXPECT_EQ(crashed.address(), 0x10u);
  ASSERT_FALSE(crashed.stack().empty());
  EXPECT_THAT(crashed.stack()[0], HasSubstr("isend"));
  EXPECT_THAT(crashed.stack()[0], HasSubstr("toy_plugin.cc:"));
}

TEST(Failure, ReportsACrashOfAPluginThatHasReplacedTheHandler) {
  PairWithBuffer pair("handle SIGSEGV, then crash in isend");
  const Crashed crashed = caught<Crashed>([&] { pair.ab.send.isend(pair.buffer, 3); });
  EXPECT_EQ(crashed.signal(), SIGSEGV);
  EXPECT_EQ(crashed.address(), 0x10u);
}

TEST(Failure, NamesTheLibraryWhoseThreadRunsAfterItWasUnloaded) {
  ToySession toy("endless thread");
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0", {.state = RankState::kBare, .fresh = true});
  rank.load();
  rank.finalize(rank.init());
  const Crashed crashed = caught<Crashed>([&] {
    rank.unload();  // the thread may run before dlclose returns
    for (;;) rank.process();
  });
  EXPECT_THAT(crashed.what(),
              MatchesRegex(".* crashed: SIGSEGV at address 0x[0-9a-f]+, in libtoy-plugin.so after it was unloaded: one "
                           "of its threads, or a function that it registered, still runs"));
}

TEST(Failure, NamesALibraryThatWasUnloadedWithThePlugin) {
  void* const library = dlopen("libanl.so.1", RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  link_map* map = nullptr;
  ASSERT_EQ(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
  const std::uint64_t address = map->l_addr;
  Ledger ledger;
  ledger.unloading(getpid(), "/lib/libnccl-net-foo.so");
  EXPECT_EQ(ledger.describe(address), "") << "it is still mapped";
  dlclose(library);
  EXPECT_EQ(ledger.describe(address),
            ", in libanl.so.1, which was unloaded with libnccl-net-foo.so: one of its threads, or a function that it "
            "registered, still runs");
}

TEST(Failure, ReadPastABufferCrashes) {
  PairWithBuffer pair("read past the buffer");
  const Crashed crashed = caught<Crashed>([&] { pair.ab.send.isend(pair.buffer); });
  EXPECT_EQ(crashed.address(), pair.memory.address() + 100);
  EXPECT_THAT(crashed.what(), HasSubstr(", 0 bytes past the end of 100 bytes of memory"));
}

TEST(Failure, WritePastTheHandleCrashes) {
  ToySession toy("write past the handle");
  Lease lease = toy.session.lease();
  EXPECT_THAT(message_of<Crashed>([&] { lease.rank("a.eth0").listen(Device{0}); }),
              StartsWith("rank a.eth0: listen(device 0) crashed: SIGSEGV"));
}

TEST(Failure, NamesInaccessibleMemoryOfTheRule) {
  PairWithBuffer pair("read past the buffer");
  pair.memory.forbid();
  EXPECT_THAT(message_of<Crashed>([&] {
                pair.ab.send.isend({pair.memory.sub(0, 10), pair.buffer.mhandle});
              }),
              HasSubstr(", byte 10 of 100 bytes of memory that the rule has made inaccessible"));
}

TEST(Failure, ReportsAbortAsCrash) {
  PairWithBuffer pair("abort in isend");
  EXPECT_EQ(caught<Crashed>([&] { pair.ab.send.isend(pair.buffer); }).signal(), SIGABRT);
}

TEST(Failure, ReportsABrokenPipeAsCrashOnRequestOnly) {
  const char* const fault = "write to a closed pipe in isend";
  PairWithBuffer survivor(fault);
  EXPECT_NO_THROW(survivor.ab.send.isend(survivor.buffer));

  ToySession toy(fault);
  Lease lease = toy.session.lease();
  Rank a = lease.rank("a.eth0", {.environment = {{"PLUGFEST_RANK_SIGPIPE", "1"}}}), b = lease.rank("b.eth0");
  Connection ab = connect({a, Device{0}}, {b, Device{0}});
  Memory memory = a.allocate(100);
  Buffer buffer = ab.send.reg(memory);
  const Crashed crashed = caught<Crashed>([&] { ab.send.isend(buffer); });
  EXPECT_EQ(crashed.signal(), SIGPIPE);
  EXPECT_THAT(crashed.what(), EndsWith("crashed: SIGPIPE"));
  EXPECT_THAT(crashed.stack(), Contains(HasSubstr("write_to_closed_pipe")));
}

Crashed crash_of_init(const std::string& fault) {
  ToySession toy(fault);
  Lease lease = toy.session.lease();
  return caught<Crashed>([&] { lease.rank("a.eth0"); });
}

TEST(Failure, ReportsSignalsToPlugfestInsteadOfReceivingThem) {
  setpgid(0, 0);  // in a container, the test may be in the group of process 1
  const Crashed parent = crash_of_init("kill the parent");
  EXPECT_EQ(parent.what(),
            fmt::format("rank a.eth0: init() tried to send SIGKILL to process {} (control_test)", getpid()));
  EXPECT_THAT(parent.stack(), Contains(HasSubstr("toy_plugin.cc:")));
  EXPECT_STREQ(crash_of_init("kill everything").what(), "rank a.eth0: init() tried to send SIGKILL to all processes");
  EXPECT_EQ(crash_of_init("kill the parent's group").what(),
            fmt::format("rank a.eth0: init() tried to send SIGTERM to process group {}, to which plugfest belongs",
                        getpgrp()));
  EXPECT_STREQ(crash_of_init("kill itself").what(),
               "rank a.eth0: init() tried to send SIGKILL to its own process group");
  EXPECT_STREQ(crash_of_init("kill with signals blocked").what(),
               "rank a.eth0: init(): the process was ended by SIGSYS, as for a signal to plugfest");
}

TEST(Failure, PreventsAndReportsAttacksOnPlugfest) {
  const std::string parent = fmt::format("process {} (control_test)", getpid());
  for (const auto& [fault, attempt] :
       {std::pair("trace the parent", fmt::format("trace {} with ptrace", parent)),
        std::pair("write to the parent", fmt::format("write to the memory of {} with process_vm_writev", parent)),
        std::pair("limit the parent", fmt::format("change a limit of {} with prlimit", parent)),
        std::pair("direct signals to the parent",
                  fmt::format("direct signals of a descriptor to {} with F_SETOWN", parent)),
        std::pair("reboot", std::string("reboot the machine"))})
    EXPECT_EQ(crash_of_init(fault).what(), "rank a.eth0: init() tried to " + attempt);
}

TEST(Failure, LimitsTheProcessesOfARank) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // this process becomes the parent of orphans
  for (const char* fault : {"start many processes", "start many daemons"}) {
    ToySession toy(fault);
    Lease lease = toy.session.lease();
    Rank other = lease.rank("b.eth0", {.environment = {{"TOY_FAULT", ""}}});
    // The processes are counted now and then, so the verdict may come during init, devices, or after them.
    EXPECT_THAT(
        message_of<Crashed>([&] {
          lease.rank("a.eth0");
          lease.check();
        }),
        MatchesRegex(
            "rank a.eth0: ((init|devices)\\(\\): )?the plugin has started [0-9]+ processes that have not ended, "
            "and a rank may have 256"))
        << fault;
    EXPECT_NO_THROW(other.rank_process()->check_alive()) << "processes of another rank";
  }
  while (waitpid(-1, nullptr, 0) > 0) continue;
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Failure, NamesTheReasonOfAClosedChannel) {
  EXPECT_STREQ(crash_of_init("close descriptors").what(),
               "rank a.eth0: init(): the plugin closed descriptor 3, which belongs to plugfest");
  const auto failed_listen = [](const std::string& fault) {
    ToySession toy(fault);
    Lease lease = toy.session.lease();
    Rank rank = lease.rank("a.eth0");
    return message_of<Crashed>([&] { rank.listen(Device{0}); });
  };
  EXPECT_THAT(failed_listen("open many descriptors"),
              MatchesRegex(".*plugfest cannot start a thread in the rank: Too many open files; 6[0-9] descriptors are "
                           "open, and its limit is 64 \\(RLIMIT_NOFILE\\)"));
  EXPECT_THAT(
      failed_listen("limit memory"),
      MatchesRegex(".*plugfest cannot start a thread in the rank: Resource temporarily unavailable; its address "
                   "space is limited to [0-9]+ bytes \\(RLIMIT_AS\\)"));
}

TEST(Failure, APluginMaySignalItsOwnProcesses) {
  for (const char* fault : {"ask for the parent", "stop a child", "affect itself"}) {
    ToySession toy(fault);
    EXPECT_EQ(toy.session.lease().rank("a.eth0").devices(), 1) << fault;
  }
}

TEST(Failure, ProcessesOfThePluginsGroupEndWithTheRank) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // this process becomes the parent of orphans
  ToySession toy("leave a process");
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  const pid_t group = rank.pid();
  rank.kill();
  int status = 0;
  EXPECT_GT(waitpid(-group, &status, 0), 0);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Failure, ReportsAnExceptionOfThePluginAsCrash) {
  PairWithBuffer pair("throw in isend");
  const Crashed crashed = caught<Crashed>([&] { pair.ab.send.isend(pair.buffer); });
  EXPECT_EQ(crashed.signal(), SIGABRT);
  EXPECT_THAT(crashed.what(), MatchesRegex("rank a.eth0: isend\\(.*\\) threw std::runtime_error: out of the plugin"));
  EXPECT_THAT(crashed.stack(), Contains(HasSubstr("isend")));
}

TEST(Failure, ReportsACrashInAThreadOfThePlugin) {
  PairWithBuffer pair("crash in a thread");
  const Crashed crashed = caught<Crashed>([&] { pair.ab.send.isend(pair.buffer); });
  EXPECT_EQ(crashed.address(), 0x20u);
  EXPECT_THAT(crashed.what(), HasSubstr("crashed: SIGSEGV at address 0x20"));
}

TEST(Failure, ReportsExitAsCrash) {
  ToySession toy("exit in init");
  Lease lease = toy.session.lease();
  const Crashed crashed = caught<Crashed>([&] { lease.rank("a.eth0"); });
  EXPECT_STREQ(crashed.what(), "rank a.eth0: init(): the process ended with exit code 3");
  EXPECT_EQ(crashed.signal(), 0);
}

TEST(Failure, ReportsACrashWhileTheProcessExits) {
  ToySession toy("crash at exit");
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0", {.fresh = true});
  EXPECT_THAT(message_of<Crashed>([&] { rank.exit(); }),
              ::testing::HasSubstr("rank a.eth0: exit(0) crashed: SIGSEGV at address 0x30"));
}

TEST(Failure, ReportsExitAlthoughAForkedProcessKeepsTheChannels) {
  ToySession toy("exit in init and leave a process", short_timeout());
  Lease lease = toy.session.lease();
  EXPECT_EQ(message_of<Crashed>([&] { lease.rank("a.eth0"); }),
            "rank a.eth0: init(): the process ended with exit code 3");
}

TEST(Failure, KeepsTheCallsAndTheLogOfARankThatDidNotStart) {
  ToySession toy("init fails");
  Lease lease = toy.session.lease();
  caught<CallFailed>([&] { lease.rank("a.eth0"); });
  const Evidence evidence = lease.evidence();
  ASSERT_EQ(evidence.ranks.size(), 1u);
  EXPECT_EQ(evidence.ranks[0].name, "a.eth0");
  EXPECT_THAT(evidence.ranks[0].last_calls, Contains(HasSubstr("init() → ncclSystemError (2)")));
  EXPECT_THAT(evidence.ranks[0].log, Contains("WARN toy_plugin.cc:1 no device"));
}

TEST(Failure, FoldsRepeatedLogLines) {
  ToySession toy("log a lot");
  Lease lease = toy.session.lease();
  lease.rank("a.eth0");
  const std::vector<std::string> log = lease.evidence().ranks.at(0).log;
  ASSERT_EQ(log.size(), 4097u);
  EXPECT_EQ(log.front(), "… 906 earlier lines are left out …");
  EXPECT_EQ(log.at(1), "INFO toy_plugin.cc:3 step 905");
  EXPECT_EQ(log.back(), "INFO toy_plugin.cc:2 retry (repeated 5000 times)");
}

TEST(Failure, ReadsTheLogPipeAfterAnInvalidRecord) {
  Pipe output = make_pipe(), log = make_pipe();
  Capture capture(std::move(output.read_end), std::move(log.read_end), 1000);
  for (int i = 0; i < 3; ++i) {
    const std::string bytes(8192, '\x7f');
    ASSERT_EQ(write(log.write_end.get(), bytes.data(), bytes.size()), std::ssize(bytes));
    capture.drain();
    int left = -1;
    ASSERT_EQ(ioctl(capture.log_fd(), FIONREAD, &left), 0);
    EXPECT_EQ(left, 0);
  }
  EXPECT_TRUE(capture.log().empty());
}

TEST(Failure, NamesTheResultOfAFailedInit) {
  ToySession toy("init fails");
  Lease lease = toy.session.lease();
  EXPECT_EQ(message_of<CallFailed>([&] { lease.rank("a.eth0"); }), "rank a.eth0: init() returned ncclSystemError (2)");
}

TEST(Failure, KillWaitsForTheEndOfTheProcess) {
  PairWithBuffer pair("");
  const pid_t pid = pair.a.pid();
  pair.a.kill();
  EXPECT_FALSE(exists(pid));
  EXPECT_TRUE(pair.a.reaped());
}

// The process of a rank that is killed, or hangs, during a call.
std::weak_ptr<RankProcess> ended_during_a_call(bool killed) {
  HangingRank hanging;
  if (killed)
    hanging.rank.kill();
  else
    EXPECT_THROW(hanging.call.get(), Hung);
  return hanging.rank.rank_process();
}

TEST(Failure, ARankThatHasEndedDuringACallIsFreedWithItsLastHandle) {
  for (const bool killed : {true, false}) EXPECT_TRUE(ended_during_a_call(killed).expired()) << killed;
}

TEST(Failure, NamesTheCallThatHangsInAWorkload) {
  PairWithBuffer pair("hang in test", short_timeout());
  Request request = pair.ab.send.isend(pair.buffer);
  EXPECT_THAT(message_of<Hung>([&] { request.wait(); }),
              MatchesRegex("rank a.eth0: test\\(request 0x[0-9a-f]+\\) did not return within 1 s"));
}

// A launcher whose ranks send fixed bytes as their first answer.
class FakeRankLauncher : public Launcher {
 public:
  explicit FakeRankLauncher(std::vector<std::byte> answer) : answer_(std::move(answer)) {}
  pid_t launch(const LaunchRequest& request) override {
    const pid_t child = fork();
    if (child == 0) {
      for (const auto& [fd, number] : request.descriptors) {
        if (number != wire::kMainFd) continue;
        char question[256];
        if (read(fd, question, sizeof question) < 0 || write(fd, answer_.data(), answer_.size()) < 0) _exit(1);
      }
      for (;;) pause();
    }
    return child;
  }

 private:
  std::vector<std::byte> answer_;
};

// The error message of a rank that answers with these bytes.
std::string error_of_answer(std::uint32_t size, std::uint32_t id, std::uint32_t kind, std::vector<std::byte> body) {
  std::vector<std::byte> bytes = wire::encode(std::array<std::uint32_t, 3>{size, id, kind});
  bytes.insert(bytes.end(), body.begin(), body.end());
  FakeRankLauncher launcher(bytes);
  Session session(launcher, {.plugin = "any"}, {});
  Lease lease = session.lease();
  return message_of<HarnessError>([&] { lease.rank("a.eth0"); });
}

TEST(Failure, RefusesInvalidBytesOfARank) {
  const std::string blame = "; the plugin may have overwritten the harness's memory";
  EXPECT_EQ(error_of_answer(0xffffffff, 1, 0, {}), "rank a.eth0: the size of a message is too large" + blame);
  EXPECT_EQ(error_of_answer(0, 99, 0, {}), "rank a.eth0: an answer without a request" + blame);
  EXPECT_EQ(error_of_answer(0, 1, 77, {}), "rank a.eth0: an answer of an unknown kind" + blame);
  EXPECT_EQ(error_of_answer(0, 1, 0, {}), "rank a.eth0: a message is shorter than expected" + blame);
  // A text whose length is greater than the rest of the message.
  EXPECT_EQ(error_of_answer(4, 1, 0, {4, std::byte{0xff}}), "rank a.eth0: a list is longer than its message" + blame);
}

TEST(Failure, RefusesARequestThatIsTooLong) {
  ToySession toy;
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  const Memory memory = rank.allocate(100);
  const std::vector<std::byte> bytes(wire::kMaxBody);  // its address and its length do not fit
  EXPECT_EQ(message_of<wire::WireError>([&] { rank.write(memory.address(), bytes); }),
            "the size of a message is too large");
  EXPECT_EQ(rank.devices(), 1) << "nothing was sent";
}

TEST(Failure, EndsARankThatDoesNotReadARequest) {
  ToySession toy("", short_timeout());
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  const Memory memory = rank.allocate(4'000'000);
  rank.freeze();
  EXPECT_EQ(message_of<HarnessError>([&] { rank.write(memory.address(), std::vector<std::byte>(memory.size())); }),
            "rank a.eth0: a request of the harness did not return within 1 s (the rank is frozen)");
  EXPECT_TRUE(rank.reaped());
}

TEST(Failure, TheUserInterruptsARequestThatARankDoesNotRead) {
  const Descriptor stop(eventfd(0, EFD_CLOEXEC));
  ToySession toy("", {.stop_fd = stop.get()});
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  const Memory memory = rank.allocate(4'000'000);
  rank.freeze();
  eventfd_write(stop.get(), 1);
  EXPECT_THROW(rank.write(memory.address(), std::vector<std::byte>(memory.size())), Interrupted);
}

bool has_ended(pid_t pid) {
  const std::optional<ProcessEntry> entry = process_entry(pid);
  return !entry || entry->state == 'Z';
}

TEST(Failure, ReportsTheControllersDescriptorLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{65, before.rlim_max};  // number 64 is the only one for the copies of a rank's descriptors
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  PlainLauncher launcher;
  EXPECT_EQ(error_message([&] {
              launcher.launch({"a", {"/bin/true"}, {}, 1, {}});
            }),
            "cannot copy descriptors for /bin/true: Too many open files");
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Failure, RanksEndWithTheirController) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t controller = fork();
  if (controller == 0) {
    ToySession toy("hang in connect");
    Lease lease = toy.session.lease();
    Rank running = lease.rank("a.eth0");
    Rank frozen = lease.rank("b.eth0");
    Rank hanging = lease.rank("c.eth0");
    frozen.freeze();
    auto started = hanging.connect(Device{0}, {}).start_poll();
    const std::array<pid_t, 3> pids = {running.pid(), frozen.pid(), hanging.pid()};
    if (write(fds[1], pids.data(), sizeof pids) < 0) _exit(1);
    for (;;) pause();
  }
  std::array<pid_t, 3> pids{};
  ASSERT_EQ(read(fds[0], pids.data(), sizeof pids), static_cast<ssize_t>(sizeof pids));
  kill(controller, SIGKILL);
  waitpid(controller, nullptr, 0);
  for (const pid_t pid : pids)
    EXPECT_TRUE(wait_until([&] { return has_ended(pid); })) << "process " << pid << " still runs";
}

}  // namespace
}  // namespace plugfest::control
