// Transfers on the fake NIC: limits, invalid arguments, and connections with several lanes.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "plugins/mesh/testing/net_fixture.h"
#include "plugins/mesh/transfer/comm.h"

namespace mesh {

namespace {

TEST_F(NetTest, DefersRequestsBeyondTheMaximum) {
  connect();
  Memory to(receive_, 8), from(send_, 8, 3);
  const std::vector<Memory*> group(8, &to);
  std::vector<int> tags(8);
  std::iota(tags.begin(), tags.end(), 100);
  std::vector<void*> receives, sends;
  for (int i = 0; i < 32; ++i) receives.push_back(post_receive(group, tags));
  EXPECT_EQ(post_receive(group, tags), nullptr);
  for (int i = 0; i < 32; ++i) {
    for (int tag = 107; tag >= 100; --tag) {
      sends.push_back(post_send(from, tag));
      ASSERT_NE(sends.back(), nullptr) << i;
    }
  }
  EXPECT_EQ(post_send(from, 100), nullptr);
  for (void* receive : receives) EXPECT_EQ(sizes_of(receive, 8), Sizes(8, 8));
  // The newest first: one test handles a limited number of completions.
  for (std::size_t i = sends.size(); i-- > 0;) EXPECT_EQ(sizes_of(sends[i]), Sizes{8});
  EXPECT_NE(post_receive(group, tags), nullptr);
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, LongMessagesAreSentInPieces) {
  fake::nic().max_message_bytes = 8192;
  connect();
  // Multiples of the piece size, other sizes, and more pieces than the send queue holds.
  for (const std::size_t size : {8192u, 8193u, 16384u, 8192u * 300 + 5}) {
    Memory from(send_, size), to(receive_, size + 1);
    std::iota(from.bytes.begin(), from.bytes.end(), std::uint8_t{1});
    void* receive = post_receive({&to}, {0});
    void* send = post_send(from, 0);
    EXPECT_EQ(sizes_of(send), Sizes{static_cast<int>(size)});
    EXPECT_EQ(done(receive), Sizes{static_cast<int>(size)});
    EXPECT_TRUE(std::equal(from.bytes.begin(), from.bytes.end(), to.bytes.begin()));
    EXPECT_EQ(to.bytes[size], 0);
  }
}

TEST_F(NetTest, TransfersWithoutInlineData) {
  fake::nic().max_inline_bytes = 0;
  connect();
  deliver(16);
}

TEST_F(NetTest, TestRefusesInvalidRequests) {
  connect();
  Memory from(send_, 8, 1), to(receive_, 8);
  void* receive = post_receive({&to}, {0});
  void* send = post_send(from, 0);
  EXPECT_EQ(done(send), Sizes{8});
  EXPECT_EQ(test_result(send), Result::kInvalidArgument);
  EXPECT_EQ(test_result(nullptr), Result::kInvalidArgument);
  EXPECT_EQ(test_result(kStale), Result::kInvalidArgument);
  EXPECT_EQ(done(receive), Sizes{8});
  EXPECT_EQ(test_result(receive), Result::kInvalidArgument);
}

TEST_F(NetTest, RefusesUnregisteredMemory) {
  connect();
  Memory from(send_, 100), to(receive_, 100);
  void* request = kStale;
  EXPECT_EQ(net::isend(send_, from.bytes.data() + 1, 100, 0, from.handle, nullptr, &request), Result::kInvalidArgument);
  EXPECT_EQ(net::isend(send_, from.bytes.data(), 1, 0, nullptr, nullptr, &request), Result::kInvalidArgument);
  EXPECT_EQ(net::dereg_mr(send_, kStale), Result::kInvalidArgument);
  EXPECT_EQ(net::dereg_mr(send_, to.handle), Result::kInvalidArgument);
  EXPECT_EQ(net::dereg_mr(send_, nullptr), Result::kSuccess);
  void* memory = kStale;
  for (const int type : {0, 2, 3, 4, 8}) {
    EXPECT_EQ(net::reg_mr(send_, from.bytes.data(), 8, type, &memory), Result::kInvalidArgument);
    EXPECT_EQ(memory, nullptr);
  }
  EXPECT_EQ(net::reg_mr(send_, from.bytes.data(), 0, abi::kPointerHost, &memory), Result::kSuccess);
  EXPECT_EQ(net::dereg_mr(send_, memory), Result::kSuccess);
}

TEST_F(NetTest, RefusesReceivesOfZeroOrTooManyBuffers) {
  connect();
  void* request = kStale;
  EXPECT_EQ(net::irecv(receive_, 0, nullptr, nullptr, nullptr, nullptr, nullptr, &request), Result::kInvalidUsage);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(net::irecv(receive_, 9, nullptr, nullptr, nullptr, nullptr, nullptr, &request), Result::kInvalidUsage);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: irecv of 9 buffers: expected 1 to 8 (maxRecvs)");
}

TEST_F(NetTest, CallsFromSeveralThreadsNeedNoLock) {
  // NCCL's threads transfer on two connections while others register memory on both and make new connections.
  struct Comms {
    void* send;
    void* receive;
  };
  std::vector<Comms> connections;
  for (int i = 0; i < 2; ++i) {
    connect();
    connections.push_back({send_, receive_});
  }
  std::vector<std::thread> threads;
  std::atomic<int> running = 2;
  for (const Comms& comms : connections) {
    threads.emplace_back([&running, comms] {
      Memory from(comms.send, 64), to(comms.receive, 64);
      for (int i = 0; i < 2000; ++i) {
        void *send = nullptr, *receive = nullptr, *data = to.bytes.data(), *handle = to.handle;
        std::size_t size = 64;
        int tag = i, done = 0;
        ASSERT_EQ(net::irecv(comms.receive, 1, &data, &size, &tag, &handle, nullptr, &receive), Result::kSuccess);
        ASSERT_EQ(net::isend(comms.send, from.bytes.data(), 64, tag, from.handle, nullptr, &send), Result::kSuccess);
        while (done == 0) ASSERT_EQ(net::test(receive, &done, nullptr), Result::kSuccess);
        done = 0;
        while (done == 0) ASSERT_EQ(net::test(send, &done, nullptr), Result::kSuccess);
      }
      --running;
    });
  }
  while (running > 0) {
    for (const Comms& comms : connections) const Memory first(comms.send, 100), second(comms.receive, 100);
    connect();
    close_send();
    close_receive();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(g_warnings.empty());
}

class LanesTest : public NetTest {
 protected:
  LanesTest() { setenv("NCCL_MESH_QPS_PER_LINK", "2", 1); }
  ~LanesTest() override { unsetenv("NCCL_MESH_QPS_PER_LINK"); }

  static Comm::Counters counters(void* comm) { return static_cast<Comm*>(comm)->counters(); }

  // Bytes that differ from the bytes of other seeds.
  static void fill(Memory& memory, std::uint8_t seed) { std::iota(memory.bytes.begin(), memory.bytes.end(), seed); }
  // Sends one message that fits its buffer exactly, and checks it.
  void exchange(std::size_t size, std::uint8_t seed) {
    Memory from(send_, size), to(receive_, size);
    fill(from, seed);
    void *receive = nullptr, *send = nullptr;
    while (receive == nullptr) receive = post_receive({&to}, {0});
    while (send == nullptr) {
      EXPECT_EQ(done(receive), Sizes{});  // the receiver's progress
      send = post_send(from, 0);
    }
    finish(send, receive, static_cast<int>(size));
    EXPECT_EQ(from.bytes, to.bytes);
  }
  void finish(void* send, void* receive, int size) {
    Sizes sent, received;
    for (int i = 0; i < 100 && (sent.empty() || received.empty()); ++i) {
      if (sent.empty()) sent = done(send);
      if (received.empty()) received = done(receive);
    }
    EXPECT_EQ(sent, Sizes{size});
    EXPECT_EQ(received, Sizes{size});
  }
};

TEST_F(LanesTest, LargeMessagesUseBothLanesAndKeepTheirExactSizes) {
  connect();
  for (const std::size_t size : {1u, 131072u, 131073u, 1048576u, 3000001u}) exchange(size, 3);
  EXPECT_TRUE(g_warnings.empty());
  fake::nic().failed_pairs = 1;
  fake::nic().failed_pairs_deliver = true;
  exchange(131072, 3);
  EXPECT_TRUE(g_warnings.empty());  // one chunk
  exchange(131073, 4);
  EXPECT_EQ(g_warnings.size(), 2u);  // the second lane carried one
}

TEST_F(LanesTest, PiecesOfChunksArriveOnTheirLane) {
  fake::nic().max_message_bytes = 8192;
  connect();
  exchange(8192 * 300 + 5, 1);
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(LanesTest, WorkOfAFailedLaneIsRepeatedOnTheOther) {
  for (const int lane : {0, 1}) {
    g_warnings.clear();
    connect();
    exchange(1 << 20, 1);
    fake::nic().failed_pairs = lane;
    exchange(1 << 20, 2);
    exchange(8, 3);
    exchange(1 << 20, 4);
    fake::nic().failed_pairs = -1;
    EXPECT_EQ(g_warnings.size(), 2u);  // one at each side
    EXPECT_EQ(
        g_warnings.front(),
        "NET/mesh: NIC fake0 to 127.0.0.1 failed (a status); its traffic continues through NIC fake0 to 127.0.0.1");
    EXPECT_EQ(counters(send_).failovers, 1u);
    EXPECT_EQ(counters(receive_).failovers, 1u);
    EXPECT_GE(counters(send_).repeated + counters(receive_).repeated, 1u);
    EXPECT_EQ(counters(receive_).messages, 4u);
    EXPECT_EQ(counters(receive_).bytes, (3u << 20) + 8);
  }
}

// The acknowledgements are lost, so only the peer knows what has arrived. A repeated write would destroy data that
// the program has put into the buffer since.
TEST_F(LanesTest, WorkThatArrivedIsNotRepeated) {
  connect();
  exchange(8, 1);
  Memory from(send_, 1 << 20), to(receive_, 1 << 20);
  fill(from, 7);
  void* receive = post_receive({&to}, {0});
  void* none = post_send(from, 1);  // takes the announcement
  EXPECT_EQ(none, nullptr);
  fake::nic().failed_pairs = 0;
  fake::nic().failed_pairs_deliver = true;
  void* send = post_send(from, 0);
  ASSERT_EQ(sizes_of(receive), Sizes{1 << 20});
  EXPECT_EQ(from.bytes, to.bytes);
  std::fill(to.bytes.begin(), to.bytes.end(), 0);
  void* next = nullptr;  // progress of the receiver, which answers the notice
  Memory more(receive_, 8);
  Sizes sent;
  for (int i = 0; i < 100 && (sent.empty() || next == nullptr); ++i) {
    if (sent.empty()) sent = done(send);
    if (next == nullptr) next = post_receive({&more}, {0});
    if (next != nullptr) EXPECT_EQ(done(next), Sizes{});
  }
  EXPECT_EQ(sent, Sizes{1 << 20});
  EXPECT_EQ(to.bytes, std::vector<std::uint8_t>(1 << 20, 0));
  EXPECT_EQ(counters(send_).repeated, 0u);
  EXPECT_EQ(counters(send_).failovers, 1u);
}

// A receiver without outstanding receives makes no call, so it cannot answer the notice.
TEST_F(LanesTest, SendCompletesWhenTheReceiverIsIdle) {
  connect();
  exchange(8, 1);
  Memory from(send_, 1 << 20), to(receive_, 1 << 20);
  void* receive = post_receive({&to}, {0});
  EXPECT_EQ(post_send(from, 1), nullptr);  // takes the announcement
  fake::nic().failed_pairs = 0;
  fake::nic().failed_pairs_deliver = true;
  void* send = post_send(from, 0);
  EXPECT_EQ(done(send), Sizes{});
  EXPECT_EQ(sizes_of(receive), Sizes{1 << 20});
  EXPECT_EQ(sizes_of(send), Sizes{1 << 20});
  fake::nic().failed_pairs_deliver = false;
  exchange(1 << 20, 5);
  EXPECT_EQ(counters(send_).repeated, 0u);
}

// Counts in notices are modulo 2^24. A receiver that always has outstanding receives sends no notice.
TEST_F(LanesTest, SendDoesNotCompleteByAnOldNotice) {
  struct Access : Comm {
    using Comm::tell_idle;
  };
  connect();
  exchange(8, 1);
  Memory from(send_, 1 << 20), to(receive_, 1 << 20);
  void* receive = post_receive({&to}, {0});
  EXPECT_EQ(post_send(from, 1), nullptr);  // takes the announcement
  fake::nic().failed_pairs = 0;
  void* send = post_send(from, 0);
  EXPECT_EQ(done(send), Sizes{});
  (static_cast<Comm*>(receive_)->*&Access::tell_idle)(0u - (1u << 23));  // 2^23 + 2 receives ago
  EXPECT_EQ(done(send), Sizes{});
  finish(send, receive, 1 << 20);
}

TEST_F(LanesTest, CommFailsWithItsLastLane) {
  connect();
  exchange(1 << 20, 1);
  Memory to(receive_, 1 << 20);
  void* receive = post_receive({&to}, {0});
  {
    Memory from(send_, 1 << 20);
    EXPECT_EQ(post_send(from, 1), nullptr);
    fake::nic().lose_packets = true;
    EXPECT_EQ(failure_of(post_send(from, 0)), Result::kRemoteError);
  }
  EXPECT_NE(g_warnings.back().find("does not answer: its process died or the link is down"), std::string::npos);
  close_send();
  EXPECT_EQ(failure_of(receive), Result::kRemoteError);
}

TEST_F(LanesTest, OversizedSendFailsAndWritesNothing) {
  connect();
  Memory from(send_, 1 << 20, 9), to(receive_, (1 << 20) - 1);
  void* receive = post_receive({&to}, {3});
  void* request = kStale;
  EXPECT_EQ(net::isend(send_, from.bytes.data(), 1 << 20, 3, from.handle, nullptr, &request), Result::kInvalidUsage);
  EXPECT_EQ(done(receive), Sizes{});
  EXPECT_EQ(to.bytes, std::vector<std::uint8_t>((1 << 20) - 1, 0));
}

}  // namespace
}  // namespace mesh
