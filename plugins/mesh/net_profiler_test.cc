// Events for NCCL's profiler, and the hints of setNetAttr.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "harness/abi/profiler.h"
#include "plugins/mesh/testing/net_fixture.h"

namespace mesh {
namespace {

using Event = plugfest::abi::ProfilerQueuePairEvent;

/// The events of a test. A call that breaks the rules of the call-back is a failure.
struct Events {
  std::vector<Event> started;
  std::vector<void*> parents;
  std::map<void**, std::size_t> running;  ///< by the place of their handles

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Event& each : started) sum += each.length;
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
  return Result::kInternalError;  // which must not disturb the transfer
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
    void *data = memory.bytes.data(), *request = kStale;
    std::size_t size = memory.bytes.size();
    int tag = 0;
    EXPECT_EQ(net::irecv(receive_, 1, &data, &size, &tag, &memory.handle, &parent, &request), Result::kSuccess);
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
  for (const Event& each : g_events.started) {
    EXPECT_EQ(each.type, 1);
    EXPECT_EQ(each.device, 0);
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
      if (!sent.empty()) {
        EXPECT_TRUE(g_events.running.empty());
      }
      if (received.empty()) received = done(receiving);
    }
    EXPECT_EQ(from.bytes, to.bytes);
    std::set<int> queue_pairs;
    for (const Event& each : g_events.started) queue_pairs.insert(each.qpNum);
    EXPECT_EQ(queue_pairs.size(), 2u);
    if (failing) {
      EXPECT_GT(g_events.bytes(), from.bytes.size());  // what was repeated has another event
    } else {
      EXPECT_EQ(g_events.bytes(), from.bytes.size());
    }
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
  for (const std::string& line : g_lines) {
    logged |= line.ends_with("path MTU 4096, one of 2 connections to each of up to 3 peers");
  }
  EXPECT_TRUE(logged);
}

}  // namespace
}  // namespace mesh
