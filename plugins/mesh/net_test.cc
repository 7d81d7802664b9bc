// Properties, virtual devices, contexts, and events for the profiler.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/abi/profiler.h"
#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/state.h"
#include "plugins/mesh/testing/net_fixture.h"

namespace mesh {

namespace {

TEST_F(NetTest, PropertiesDescribeTheNic) {
  init();
  int count = -7;
  ASSERT_EQ(net::devices(&count), Result::kSuccess);
  ASSERT_EQ(count, 1);
  net::Properties properties;
  std::memset(&properties, 0x5a, sizeof properties);
  ASSERT_EQ(net::get_properties(0, &properties), Result::kSuccess);
  EXPECT_STREQ(properties.name, "fake0");
  EXPECT_EQ(properties.pciPath, nullptr);
  EXPECT_NE(properties.guid, 0u);
  EXPECT_EQ(properties.speed, 25000);
  EXPECT_EQ(properties.maxRecvs, 8);
  EXPECT_EQ(properties.vProps.ndevs, 1);
  EXPECT_EQ(properties.planeId, -1);
  EXPECT_EQ(net::get_properties(1, &properties), Result::kInvalidArgument);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: device 1 does not exist: devices returned 1");
}

TEST_F(NetTest, InitFailsForAnInvalidEnvironmentVariable) {
  setenv("NCCL_MESH_TC", "300", 1);
  void* context = nullptr;
  EXPECT_EQ(net::init(&context, 0, nullptr, keep_warnings, nullptr), Result::kInvalidArgument);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: NCCL_MESH_TC=300: expected a number from 0 to 255");
  EXPECT_EQ(context, nullptr);
  unsetenv("NCCL_MESH_TC");
  EXPECT_EQ(net::init(&context, 0, nullptr, keep_warnings, nullptr), Result::kSuccess);
  EXPECT_EQ(net::finalize(context), Result::kSuccess);
}

TEST_F(NetTest, MakesVirtualDevices) {
  init();
  for (const int index : {1, 2}) {
    net::VDevice members = {.ndevs = 1, .devs = {0}};
    int made = -7, count = -7;
    ASSERT_EQ(net::make_vdevice(&made, &members), Result::kSuccess);
    EXPECT_EQ(made, index);
    ASSERT_EQ(net::devices(&count), Result::kSuccess);
    EXPECT_EQ(count, index + 1);
    net::Properties properties;
    ASSERT_EQ(net::get_properties(index, &properties), Result::kSuccess);
    EXPECT_EQ(properties.name, "fake0#" + std::to_string(index));
    EXPECT_EQ(properties.speed, 25000);
    EXPECT_EQ(properties.vProps.ndevs, 1);
    EXPECT_EQ(properties.vProps.devs[0], 0);
  }
  device_ = 2;
  connect();
  deliver(100);
}

TEST_F(NetTest, RefusesVirtualDevicesWithoutSideEffect) {
  struct Refusal {
    net::VDevice members;
    Result code;
    const char* warning;
  };
  init();
  int made = -7;
  net::VDevice whole = {.ndevs = 1, .devs = {0}};
  ASSERT_EQ(net::make_vdevice(&made, &whole), Result::kSuccess);
  const auto check = [&](const Refusal& refusal) {
    net::VDevice members = refusal.members;
    made = -7;
    EXPECT_EQ(net::make_vdevice(&made, &members), refusal.code) << refusal.warning;
    EXPECT_EQ(g_warnings.back(), refusal.warning);
    EXPECT_EQ(made, -7);
    int count = 0;
    EXPECT_EQ(net::devices(&count), Result::kSuccess);
    EXPECT_EQ(count, 2);
  };
  const Refusal refusals[] = {
      {{.ndevs = 0, .devs = {}},
       Result::kInvalidUsage,
       "NET/mesh: makeVDevice: 0 devices cannot be merged, only 1 to 8"},
      {{.ndevs = 9, .devs = {}},
       Result::kInvalidUsage,
       "NET/mesh: makeVDevice: 9 devices cannot be merged, only 1 to 8"},
      {{.ndevs = 2, .devs = {0, 0}}, Result::kInvalidArgument, "NET/mesh: makeVDevice: device 0 is listed twice"},
      {{.ndevs = 1, .devs = {1}}, Result::kInvalidArgument, "NET/mesh: makeVDevice: device 1 is not one of the 1 NICs"},
      {{.ndevs = 2, .devs = {0, -1}},
       Result::kInvalidArgument,
       "NET/mesh: makeVDevice: device -1 is not one of the 1 NICs"},
  };
  for (const Refusal& refusal : refusals) check(refusal);
  EXPECT_EQ(net::make_vdevice(nullptr, &whole), Result::kInvalidArgument);
  EXPECT_EQ(net::make_vdevice(&made, nullptr), Result::kInvalidArgument);
}

TEST_F(NetTest, OneLinkForbidsMergingNics) {
  setenv("NCCL_MESH_LINKS", "1", 1);
  init();
  unsetenv("NCCL_MESH_LINKS");
  net::VDevice members = {.ndevs = 2, .devs = {0, 1}};
  int made = -7;
  EXPECT_EQ(net::make_vdevice(&made, &members), Result::kInvalidUsage);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: makeVDevice: NCCL_MESH_LINKS=1 forbids merging NICs: also set NCCL_NET_MERGE_LEVEL=LOC");
}

TEST_F(NetTest, PortsThatAreDownAreNotDevices) {
  fake::nic().active = false;
  init();
  int count = -7;
  ASSERT_EQ(net::devices(&count), Result::kSuccess);
  EXPECT_EQ(count, 0);
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, ListensOnAddressesThatANicGotAfterInit) {
  init();
  fake::nic().gids = {"127.0.0.1", "", "::1"};
  connect();
  const OpenListener first(context_);
  EXPECT_EQ(first.handle().addresses.size(), 2u);
  fake::nic().gids = {"127.0.0.1"};
  OpenListener second(context_);
  EXPECT_EQ(second.handle().addresses.size(), 1u);
  connect_to(second);
}

TEST_F(NetTest, ContextsAreIndependent) {
  init();
  void* second = nullptr;
  ASSERT_EQ(net::init(&second, 1, nullptr, keep_warnings, nullptr), Result::kSuccess);
  EXPECT_NE(second, context_);
  connect();
  EXPECT_EQ(net::finalize(second), Result::kSuccess);
  EXPECT_EQ(net::finalize(nullptr), Result::kSuccess);
  EXPECT_EQ(net::finalize(second), Result::kInvalidArgument);
  deliver(100);
}

TEST_F(NetTest, CommsWorkAfterFinalize) {
  connect();
  EXPECT_EQ(net::finalize(context_), Result::kSuccess);
  context_ = nullptr;
  deliver(100);
}

TEST_F(NetTest, UnloadingClosesOpenObjects) {
  connect();
  OpenListener listener(context_);
  void* unfinished = nullptr;
  ASSERT_EQ(listener.connect(&unfinished), Result::kSuccess);
  std::vector<std::uint8_t> bytes(8);
  void* memory = nullptr;
  ASSERT_EQ(net::reg_mr(receive_, bytes.data(), bytes.size(), abi::kPointerHost, &memory), Result::kSuccess);
  close_everything();
  EXPECT_EQ(fake::open_objects(), 0u);

  // Later calls, from threads that still run, return errors.
  void* request = kStale;
  EXPECT_EQ(net::isend(send_, nullptr, 0, 0, nullptr, nullptr, &request), Result::kInternalError);
  EXPECT_EQ(net::reg_mr(send_, bytes.data(), bytes.size(), abi::kPointerHost, &memory), Result::kInternalError);
  EXPECT_EQ(net::accept(listener.release(), &unfinished, nullptr), Result::kInvalidArgument);
  context_ = nullptr;
}

using Event = plugfest::abi::ProfilerQueuePairEvent;

// The events of a test. A call that breaks the rules of the call-back is a failure.
struct Events {
  std::vector<Event> started;
  std::vector<void*> parents;
  std::map<void**, std::size_t> running;  ///< by the address of their handles

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Event& event : started) sum += event.length;
    return sum;
  }
};
Events g_events;

Result record(void** handle, int type, void* parent, std::int64_t id, void* data) {
  EXPECT_EQ(id, 1 << 16 | 1);
  if (type == plugfest::abi::kProfilerNetStart) {
    EXPECT_EQ(*handle, nullptr);
    EXPECT_NE(parent, nullptr);
    EXPECT_TRUE(g_events.running.emplace(handle, g_events.started.size()).second);
    g_events.started.push_back(*static_cast<const Event*>(data));
    g_events.parents.push_back(parent);
    *handle = handle;
  } else {
    EXPECT_EQ(type, plugfest::abi::kProfilerNetStop);
    EXPECT_EQ(*handle, handle);
    EXPECT_EQ(g_events.running.erase(handle), 1u);
  }
  return Result::kInternalError;  // the transfer must ignore it
}

class ProfilerTest : public NetTest {
 protected:
  ProfilerTest() { g_events = {}, g_lines.clear(); }
  ~ProfilerTest() override { unsetenv("NCCL_MESH_QPS_PER_LINK"); }

  void connect_profiled() {
    ASSERT_EQ(net::init(&context_, 0, nullptr, keep_warnings, record), Result::kSuccess);
    connect();
  }
  void* receive(Memory& memory, void* parent) {
    void* request = kStale;
    EXPECT_EQ(try_receive(memory, 0, &request, parent), Result::kSuccess);
    return request;
  }
  void* send(Memory& memory, void* parent) {
    void* request = kStale;
    EXPECT_EQ(net::isend(send_, memory.bytes.data(), memory.bytes.size(), 0, memory.handle, parent, &request),
              Result::kSuccess);
    return request;
  }
  int send_step_ = 0, receive_step_ = 0;  ///< their addresses are phandles
};

TEST_F(ProfilerTest, EachMessageHasAnEventOnItsQueuePair) {
  connect_profiled();
  Memory from(send_, 100), to(receive_, 200);
  void* receiving = receive(to, &receive_step_);
  void* sending = send(from, &send_step_);
  ASSERT_EQ(g_events.started.size(), 2u);
  EXPECT_EQ(g_events.parents, (std::vector<void*>{&receive_step_, &send_step_}));
  EXPECT_EQ(g_events.started[0].length, 200u);
  EXPECT_EQ(g_events.started[1].length, 100u);
  EXPECT_NE(g_events.started[0].qpNum, g_events.started[1].qpNum);
  for (const Event& event : g_events.started) {
    EXPECT_EQ(event.type, 1);
    EXPECT_EQ(event.device, 0);
  }
  EXPECT_EQ(g_events.running.size(), 2u);
  EXPECT_EQ(sizes_of(sending), Sizes{100});
  EXPECT_EQ(g_events.running.size(), 1u);
  EXPECT_EQ(sizes_of(receiving), Sizes{100});
  EXPECT_TRUE(g_events.running.empty());
}

TEST_F(ProfilerTest, NothingIsReportedWithoutAHandleOrACallback) {
  connect_profiled();
  Memory from(send_, 100), to(receive_, 200);
  void* receiving = post_receive({&to}, {0});
  EXPECT_EQ(sizes_of(send(from, nullptr)), Sizes{100});
  EXPECT_EQ(sizes_of(receiving), Sizes{100});
  EXPECT_TRUE(g_events.started.empty());
}

TEST_F(ProfilerTest, NullCallbackIsRespected) {
  connect();
  Memory from(send_, 100), to(receive_, 200);
  void* receiving = receive(to, &receive_step_);
  EXPECT_EQ(sizes_of(send(from, &send_step_)), Sizes{100});
  EXPECT_EQ(sizes_of(receiving), Sizes{100});
}

TEST_F(ProfilerTest, ChunksOfALargeMessageHaveEventsOnTheirLanes) {
  setenv("NCCL_MESH_QPS_PER_LINK", "2", 1);
  connect_profiled();
  for (const bool failing : {false, true}) {
    g_events = {};
    Memory from(send_, 4 << 20, 7), to(receive_, 4 << 20);
    void* receiving = post_receive({&to}, {0});
    EXPECT_EQ(post_send(from, 1), nullptr);  // takes the announcement
    fake::nic().failed_pairs = failing ? 0 : -1;
    void* sending = send(from, &send_step_);
    Sizes sent, received;
    while (sent.empty() || received.empty()) {  // ctest's time limit is the deadline
      if (sent.empty()) sent = done(sending);
      if (!sent.empty()) EXPECT_TRUE(g_events.running.empty());
      if (received.empty()) received = done(receiving);
    }
    EXPECT_EQ(from.bytes, to.bytes);
    std::set<int> queue_pairs;
    for (const Event& event : g_events.started) queue_pairs.insert(event.qpNum);
    EXPECT_EQ(queue_pairs.size(), 2u);
    if (failing)
      EXPECT_GT(g_events.bytes(), from.bytes.size());  // what was repeated has another event
    else
      EXPECT_EQ(g_events.bytes(), from.bytes.size());
  }
}

TEST_F(ProfilerTest, EventsStopWhenTheTransferFails) {
  connect_profiled();
  Memory to(receive_, 100);
  void* receiving = receive(to, &receive_step_);
  {
    Memory from(send_, 100);
    EXPECT_EQ(post_send(from, 1), nullptr);  // takes the announcement
    fake::nic().lose_packets = true;
    EXPECT_EQ(failure_of(send(from, &send_step_)), Result::kRemoteError);
  }
  EXPECT_EQ(g_events.running.size(), 1u);
  close_send();
  EXPECT_EQ(failure_of(receiving), Result::kRemoteError);
  EXPECT_TRUE(g_events.running.empty());
}

TEST_F(ProfilerTest, SetNetAttrAcceptsHintsAtAnyTime) {
  init();
  abi::newest::NetAttr attributes = {};
  EXPECT_EQ(net::set_net_attr(context_, &attributes), Result::kSuccess);
  attributes.sendCommAttr = {
      .maxConcurrentPeers = 3, .minConcurrentPeers = 1, .maxFlowsPerPeer = 2, .minFlowsPerPeer = -1};
  EXPECT_EQ(net::set_net_attr(context_, &attributes), Result::kSuccess);
  EXPECT_EQ(net::set_net_attr(context_, nullptr), Result::kSuccess);
  EXPECT_EQ(net::set_net_attr(kStale, &attributes), Result::kSuccess);  // NCCL ignores the result
  connect();
  bool logged = false;
  for (const std::string& line : g_lines)
    logged |= line.ends_with("path MTU 4096, one of 2 connections to each of up to 3 peers");
  EXPECT_TRUE(logged);
}

}  // namespace
}  // namespace mesh
