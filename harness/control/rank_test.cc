// Plugin calls in a rank: outcomes, outputs, damage, memory, threads.
#include "harness/control/rank.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "fabric/system/testing.h"
#include "harness/control/call.h"
#include "harness/control/toy_session.h"
#include "harness/control/workload.h"

namespace plugfest::control {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

TEST(Rank, ReportsTheVariablesThatThePluginReads) {
  ToySession toy("reported");
  Lease lease = toy.session.lease();
  lease.rank("a.eth0");
  EXPECT_TRUE(wait_until([] { return variables_read().contains("TOY_FAULT"); }));
  EXPECT_FALSE(variables_read().contains("PATH"));
}

TEST(Rank, DescribesTheLoadedLibrary) {
  ToySession toy;
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  EXPECT_EQ(rank.name(), "a.eth0");
  EXPECT_EQ(rank.library().name, "Toy");
  EXPECT_EQ(rank.api(), 11);
  EXPECT_THAT(rank.library().path, EndsWith("libtoy-plugin.so"));
  EXPECT_THAT(rank.process().libraries, Contains(rank.library().path));
}

// Devices with these names, and guids 1, 2, 3, …
std::vector<Properties> devices_named(const std::vector<std::string>& names) {
  std::vector<Properties> devices;
  for (const std::string& name : names) {
    devices.emplace_back().name = name;
    devices.back().guid = devices.size();
  }
  return devices;
}

TEST(DeviceOfInterface, HasItsNameAsAWord) {
  EXPECT_EQ(device_of_interface(devices_named({"roce_eth11", "roce_eth1"}), "eth1"), 1);
  EXPECT_EQ(device_of_interface(devices_named({"foo0", "foo1"}), "eth1"), std::nullopt);
  EXPECT_EQ(device_of_interface(devices_named({"foo0"}), "eth1"), 0) << "the only device";
  EXPECT_EQ(device_of_interface(devices_named({"roce_eth0"}), "eth1"), std::nullopt) << "of another interface";
}

TEST(DeviceOfInterface, MessageSaysWhatToDoIfItIsMissing) {
  const std::string text = text_of_missing_device("a.eth1", "eth1", devices_named({"roce_eth0", "roce_eth2"}));
  EXPECT_THAT(text, StartsWith("no device of rank a.eth1 is named after its interface eth1: assign its devices "
                               "(roce_eth0, roce_eth2) with --device, or"));
  EXPECT_THAT(text_of_missing_device("a.eth1", "eth1", {}), StartsWith("the plugin finds no device"));
}

TEST(KnownDevice, IsFoundWhereAnotherIsMissing) {
  std::vector<Properties> devices = devices_named({"foo0", "foo1", "foo2"});
  EXPECT_EQ((KnownDevice{1, "foo1", 2}.find(devices)), 1);
  devices.erase(devices.begin());
  EXPECT_EQ((KnownDevice{1, "foo1", 2}.find(devices)), 0);
  devices.front().name = "foo0";  // a plugin that numbers its active devices
  EXPECT_EQ((KnownDevice{1, "foo1", 2}.find(devices)), 0) << "the guid decides";
}

TEST(KnownDevice, IsFoundWithoutGuidByNameThenByIndex) {
  std::vector<Properties> devices = devices_named({"foo0", "foo1"});
  for (Properties& device : devices) device.guid = 0;
  EXPECT_EQ((KnownDevice{0, "foo1", 0}.find(devices)), 1);
  for (Properties& device : devices) device.name = "foo";
  EXPECT_EQ((KnownDevice{1, "foo", 0}.find(devices)), 1);
  EXPECT_EQ((KnownDevice{2, "foo", 0}.find(devices)), std::nullopt);
}

TEST(Rank, TransfersAMessage) {
  Pair pair;
  Memory from = pair.a.allocate(1000);
  Memory to = pair.b.allocate(1000);
  pair.a.fill(from, 7);
  EXPECT_FALSE(pair.b.check(to, 7));

  Send send(pair.ab.send, pair.ab.send.reg(from).buffer(), 5);
  Receive receive(pair.ab.receive, pair.ab.receive.reg(to).buffer(), 5);
  finish({&send, &receive});

  EXPECT_EQ(receive.size(), 1000);
  EXPECT_TRUE(pair.b.check(to, 7));
  EXPECT_THAT(pair.b.check(to, 8).difference,
              MatchesRegex("byte 0 is 0x.., expected 0x.. \\([0-9]+ of 1000 bytes differ\\)"));
  EXPECT_THAT(pair.lease.release(true), ::testing::IsEmpty());
}

TEST(Rank, TransfersAStream) {
  Pair pair;
  stream(pair.ab.send, pair.ab.receive, {.count = 3000, .seed = 3, .posted_size = 65536});
}

TEST(Rank, StreamReportsACorruptByte) {
  Pair pair("corrupt");
  EXPECT_THAT(
      message_of<Deviation>([&] { stream(pair.ab.send, pair.ab.receive, {.count = 10, .sizes = {100}}); }),
      MatchesRegex("rank b.eth0: message 0 \\(100 bytes, tag 0\\): byte 2 is 0x.., sent 0x..; 1 of 100 bytes differ"));
}

TEST(Rank, StreamReportsAWrongSize) {
  Pair pair("wrong size");
  // Both ranks detect it. The stream reports the rank that was first.
  EXPECT_THAT(message_of<Deviation>([&] {
                stream(pair.ab.send, pair.ab.receive, {.count = 10, .sizes = {100}, .tag = 7, .check_sizes = true});
              }),
              AnyOf("rank b.eth0: message 0: sizes[0] = 101, sent 100 (tag 7)",
                    "rank a.eth0: message 0: the sender's sizes[0] = 101, sent 100 (tag 7)"));
}

TEST(Rank, StreamNamesTheResultOfAFailedCall) {
  Pair pair("test fails");
  EXPECT_THAT(message_of<Deviation>([&] { stream(pair.ab.send, pair.ab.receive, {.count = 10, .sizes = {100}}); }),
              EndsWith("eth0: test of message 0 returned ncclInternalError (3)"));
}

TEST(Rank, AllStreamsNameTheOneThatFailedFirst) {
  Pair pair("", short_timeout());
  // The sender sends wrong content, and then stops.
  std::vector<Started<StreamOutcome>> streams;
  streams.push_back(start_sending(pair.ab.send, {.count = 20, .seed = 2, .sizes = {100}}));
  streams.push_back(start_receiving(pair.ab.receive, {.count = 10, .seed = 1, .sizes = {100}}));
  EXPECT_THAT(message_of<Deviation>([&] { require_all_clean(std::move(streams)); }),
              StartsWith("rank b.eth0: message 0 (100 bytes, tag 0): byte 0 is "));
}

TEST(Rank, StreamStallsWithoutASender) {
  Pair pair("", {.call_seconds = 0.2});
  EXPECT_EQ(message_of<Stalled>([&] { require_clean(start_receiving(pair.ab.receive, {.count = 10}).get()); }),
            "rank b.eth0: message 0 never completed (8 in flight, 0 of 10 done)");
}

TEST(Rank, ConnectsManyCommsInOneLoop) {
  ToySession toy;
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  ConnectMany plan;
  for (int i = 0; i < 16; ++i) {
    plan.listeners.push_back(rank.listen(Device{0}));
    plan.handles.push_back(plan.listeners.back().handle());
  }
  for (std::uint32_t i = 32; i > 0; --i) plan.order.push_back(i - 1);
  const ConnectManyOutcome outcome = start_connecting(rank, plan).get();
  require_clean(outcome);
  EXPECT_THAT(outcome.send_comms, ::testing::Each(::testing::Ne(0u)));
  EXPECT_THAT(outcome.recv_comms, ::testing::SizeIs(16));
  EXPECT_THAT(lease.release(true), ::testing::IsEmpty());
}

TEST(Rank, ReportsAFailedCallInOneLine) {
  ToySession toy;
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  EXPECT_EQ(message_of<CallFailed>([&] { rank.properties(Device{4}); }),
            "rank a.eth0: getProperties(4) returned ncclInternalError (3)");
  EXPECT_EQ(rank.try_properties(Device{4}).code, kInternalError);
}

TEST(Rank, ReportsUnwrittenOutputs) {
  ToySession toy("devices writes nothing");
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0", {.state = RankState::kLoaded});
  rank.init();
  const IntOutcome outcome = rank.try_devices(-7);
  EXPECT_TRUE(outcome.untouched);
  EXPECT_EQ(outcome.value, -7);
}

TEST(Rank, UnwrittenPropertyKeepsTheFill) {
  ToySession toy("one field unwritten");
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  EXPECT_EQ(rank.try_properties(Device{0}, 0x5a).integer("forceFlush"), 0x5a5a5a5a);
  EXPECT_EQ(rank.try_properties(Device{0}, 0x11).integer("forceFlush"), 0x11111111);
  EXPECT_EQ(rank.try_properties(Device{0}, 0x11).integer("speed"), 10000);
  EXPECT_EQ(rank.try_properties(Device{0}).name, "toy_eth0");
}

TEST(Rank, ReportsUnwrittenDone) {
  Pair pair("done unwritten");
  Request request = pair.ab.receive.irecv(pair.ab.receive.reg(pair.b.allocate(8)));
  EXPECT_THAT(message_of<Deviation>([&] { request.test({.done = 0x5a5a5a5a}); }),
              MatchesRegex("rank b.eth0: test\\(request 0x[0-9a-f]+\\) did not store \\*done"));
}

TEST(Rank, ReportsWritesPastAnArray) {
  Pair pair("write past sizes");
  const Memory memory = pair.b.allocate(8);
  EXPECT_THAT(message_of<Damage>([&] { pair.ab.receive.irecv(pair.ab.receive.reg(memory)); }),
              EndsWith("tag 0) wrote past the end of sizes[1], 0 bytes behind it"));
}

TEST(Rank, ReportsWritesPastSixtyFourSizes) {
  Pair pair("write past 64 sizes");
  Send send(pair.ab.send, pair.ab.send.reg(pair.a.allocate(8)));
  EXPECT_THAT(message_of<Damage>([&] { finish({&send}); }),
              EndsWith("wrote past the end of sizes[64], 0 bytes behind it"));
}

TEST(Rank, ReportsChangedArguments) {
  Pair pair("change tags");
  const Memory memory = pair.b.allocate(8);
  const PointerOutcome outcome = pair.ab.receive.try_irecv({{pair.ab.receive.reg(memory), 3}});
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.damage, "");
  EXPECT_EQ(outcome.changes, "changed tags[0] from 3 to 99");
}

TEST(Rank, RecordsTheCallsOfTheProfilerCallback) {
  Pair pair;
  const Memory memory = pair.a.allocate(8);
  const Buffer buffer = pair.ab.send.reg(memory);
  pair.ab.send.isend(buffer, 0, {.phandle = 0x70});
  pair.a.record_profiler();
  const PointerOutcome outcome = pair.ab.send.try_isend(buffer, 0, {.phandle = 0x80});

  const std::vector<ProfilerCall> calls = pair.a.profiler_calls();
  ASSERT_EQ(calls.size(), 2u) << "those before record_profiler are not recorded";
  EXPECT_EQ(calls[0].callback, 1);
  EXPECT_EQ(calls[0].function, "isend");
  EXPECT_GE(calls[0].at_ns, outcome.start_ns);
  EXPECT_LE(calls[0].at_ns, outcome.end_ns);
  EXPECT_EQ(calls[0].type, 0);
  EXPECT_EQ(calls[0].phandle, 0x80u);
  EXPECT_EQ(calls[0].plugin_id, 0x10001);
  EXPECT_EQ(calls[0].readable_bytes, 40u);
  EXPECT_TRUE(calls[0].accessible);
  EXPECT_EQ(calls[0].handle_before, 0u);
  EXPECT_NE(calls[0].handle_after, 0u);
  EXPECT_EQ(calls[1].type, 1);
  EXPECT_EQ(calls[1].event, calls[0].event);
  EXPECT_EQ(calls[1].handle_before, calls[0].handle_after);
  EXPECT_EQ(calls[1].handle_after, calls[0].handle_after) << "only a start stores a handle";
  EXPECT_EQ(calls[1].readable_bytes, 0u);
  EXPECT_TRUE(pair.a.profiler_calls().empty());
}

TEST(Rank, ProfilerCallbackStoresNoHandleOnRequest) {
  Pair pair;
  const Memory memory = pair.b.allocate(8);
  pair.b.record_profiler({.stores_handles = false});
  pair.ab.receive.irecv({{pair.ab.receive.reg(memory), 3}}, {.phandles = {0x90}});
  const std::vector<ProfilerCall> calls = pair.b.profiler_calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].function, "") << "a thread of the plugin";
  EXPECT_EQ(calls[0].phandle, 0x90u);
  EXPECT_EQ(calls[0].handle_after, 0u);
}

TEST(Rank, ProfilerCallbackAccessesNoInvalidMemory) {
  Pair pair("report unreadable events");
  const Memory memory = pair.a.allocate(8);
  pair.a.record_profiler();
  pair.ab.send.isend(pair.ab.send.reg(memory), 0, {.phandle = 0x80});
  const std::vector<ProfilerCall> calls = pair.a.profiler_calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_FALSE(calls[0].accessible);
  EXPECT_EQ(calls[0].event, 0x10u);
}

TEST(Rank, SaysHowManyCallsOfTheProfilerCallbackAreNotRecorded) {
  Pair pair;
  const Memory memory = pair.a.allocate(8);
  const Buffer buffer = pair.ab.send.reg(memory);
  pair.a.record_profiler();
  for (int i = 0; i < 4097; ++i) pair.ab.send.try_isend(buffer, 0, {.phandle = 0x80});  // two calls each
  EXPECT_EQ(message_of<HarnessError>([&] { pair.a.profiler_calls(); }),
            "rank a.eth0: 2 calls of the profiler callback were not recorded: send fewer messages");
}

TEST(Rank, ReportsAWriteBeforeTheHandle) {
  ToySession toy("write before the handle");
  Lease lease = toy.session.lease();
  EXPECT_EQ(message_of<Damage>([&] { lease.rank("a.eth0").listen(Device{0}); }),
            "rank a.eth0: listen(device 0) wrote before the handle");
}

TEST(Rank, UnmapsAndMapsMemory) {
  ToySession toy;
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  Memory memory = rank.allocate(10000);
  rank.fill(memory, 1);
  memory.unmap();
  memory.map_again();
  EXPECT_TRUE(rank.check_set(memory, 0));
  rank.set(memory.sub(10, 2), 0x42);
  EXPECT_EQ(rank.check_set(memory, 0).difference, "byte 10 is 0x42, expected 0x00 (2 of 10000 bytes differ)");
  EXPECT_EQ(rank.read(memory.sub(9, 2)), (std::vector<std::byte>{std::byte{0}, std::byte{0x42}}));
  memory.free();
}

// Number of mappings in the address space of a process.
std::ptrdiff_t mappings(pid_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

TEST(Rank, ReleaseFreesTheBuffersOfConnectAndAccept) {
  ToySession toy;
  std::vector<std::ptrdiff_t> after_release;
  for (int i = 0; i < 2; ++i) {
    Lease lease = toy.session.lease();
    Rank rank = lease.rank("a.eth0");
    for (int j = 0; j < 20; ++j) connect({rank, Device{0}}, {rank, Device{0}});
    EXPECT_THAT(lease.release(true), ::testing::IsEmpty());
    after_release.push_back(mappings(rank.pid()));
  }
  EXPECT_LT(after_release[1], after_release[0] + 20);
}

TEST(Rank, RunsCallsOnSeveralThreadsAtOnce) {
  Pair pair;
  // The wait occupies `prog`.
  Request request = pair.ab.receive.irecv(pair.ab.receive.reg(pair.b.allocate(8)));
  auto waiting = request.start_wait();
  EXPECT_FALSE(waiting.ready());
  EXPECT_EQ(pair.b.devices(), 1);
  EXPECT_EQ(pair.b.on("another").devices(), 1);
  Send send(pair.ab.send, pair.ab.send.reg(pair.a.allocate(8)));
  finish({&send});
  EXPECT_EQ(waiting.get().done, 1);
}

TEST(Rank, MakesManyCallsAndTakesTheirOutcomesInOrder) {
  ToySession toy;
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  std::size_t started = 0;
  std::vector<std::size_t> taken;
  make_calls(
      numbers_below(1000),
      [&](std::size_t) {
        ++started;
        return rank.start_properties({0});
      },
      [&](std::size_t call, const PropertiesOutcome& outcome) {
        EXPECT_EQ(properties_of(outcome, 0).name, "toy_eth0");
        taken.push_back(call);
        return call < 100;
      });
  EXPECT_LT(started, 200u) << "calls started after the end was requested";
  EXPECT_EQ(taken.size(), started) << "outcomes of calls that were started";
  EXPECT_TRUE(std::is_sorted(taken.begin(), taken.end()));
}

TEST(Rank, ExitClosesCommsLate) {
  Pair pair;
  EXPECT_NO_THROW(pair.a.exit(true));
  EXPECT_NO_THROW(pair.lease.check()) << "the rule has ended it";
  EXPECT_EQ(message_of<Crashed>([&] { pair.a.devices(); }), "rank a.eth0: exit(0): the process ended with exit code 0");
}

TEST(Rank, ForkReturnsTheStatusOfTheChild) {
  ToySession toy;
  Lease lease = toy.session.lease();
  Rank rank = lease.rank("a.eth0");
  for (const auto child : {Rank::Child::kExits, Rank::Child::kRunsAnotherProgram, Rank::Child::kCallsInit})
    EXPECT_EQ(rank.fork(child), 0) << static_cast<int>(child);
  ToySession other("exit in init");
  Lease other_lease = other.session.lease();
  Rank loaded = other_lease.rank("a.eth0", {.state = RankState::kLoaded});
  EXPECT_EQ(loaded.fork(Rank::Child::kCallsInit), 3 << 8);
}

TEST(Rank, FrozenRankAnswersAfterThaw) {
  Pair pair;
  Listener listener = pair.b.listen(Device{0});
  pair.b.freeze();
  auto started = pair.b.accept(listener).start_poll();
  EXPECT_FALSE(started.ready());
  pair.b.thaw();
  EXPECT_TRUE(started.get().ok());
}

TEST(Rank, DoesNotCallAMissingFunction) {
  Pair pair;
  EXPECT_FALSE(pair.b.has_function("irecvConsumed"));
  EXPECT_TRUE(pair.b.has_function("irecv"));
  const Outcome outcome = pair.ab.receive.try_consumed(1, 0x10);
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.start_ns, 0);
  EXPECT_THAT(pair.lease.evidence().ranks[1].last_calls, ::testing::Not(Contains(HasSubstr("irecvConsumed"))));
}

TEST(Rank, EvidenceShowsTheLastCalls) {
  Pair pair;
  pair.a.devices();
  pair.a.devices();
  const Evidence evidence = pair.lease.evidence();
  ASSERT_EQ(evidence.ranks.size(), 2u);
  EXPECT_EQ(evidence.ranks[0].name, "a.eth0");
  EXPECT_THAT(evidence.ranks[0].last_calls, Contains(HasSubstr("main  init() → context 0x100")));
  EXPECT_THAT(evidence.ranks[0].last_calls.back(), HasSubstr("main  devices() → 1  (×2"));
  EXPECT_THAT(evidence.ranks[1].last_calls, Contains(HasSubstr("svc   accept(listener")));
  EXPECT_THAT(evidence.ranks[0].log, Contains(HasSubstr("toy plugin version 1")));
}

TEST(Rank, KeepsTheEndOfTheOutput) {
  ToySession toy("print a lot", {.call_seconds = 10, .last_calls = 12, .output_bytes = 1000});
  Lease lease = toy.session.lease();
  const std::string output = (lease.rank("a.eth0"), lease.evidence().ranks.at(0).output);
  EXPECT_THAT(output, StartsWith("… "));
  EXPECT_THAT(output, EndsWith("line 99999 of the output\n"));
  EXPECT_LT(output.size(), 1100u);
}

TEST(Rank, MeasuresTheTimeOfACall) {
  Pair pair;
  constexpr int kCalls = 2000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) pair.a.devices();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  RecordProperty("microseconds", std::to_string(took.count() / kCalls));
  std::printf("one call takes %.1f µs\n", took.count() / kCalls);
}

}  // namespace
}  // namespace plugfest::control
