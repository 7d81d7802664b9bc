// Closed connections and lost peers, as the other side sees them.
#include <gtest/gtest.h>
#include <unistd.h>

#include "plugins/mesh/testing/net_fixture.h"

namespace mesh {
namespace {

TEST_F(NetTest, PendingReceiveFailsWhenThePeerCloses) {
  connect();
  Memory to(receive_, 8);
  void* receive = post_receive({&to}, {0});
  close_send();
  EXPECT_EQ(failure_of(receive), Result::kRemoteError);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: the peer at 127.0.0.1 (through fake0) closed the connection while this side still used it");
  EXPECT_EQ(g_warnings.size(), 1u);
  EXPECT_EQ(test_result(receive), Result::kRemoteError);
  EXPECT_EQ(g_warnings.size(), 1u) << "the error is logged once";
}

TEST_F(NetTest, MessageSentBeforeCloseArrives) {
  connect();
  Memory to(receive_, 8);
  void* receive = post_receive({&to}, {0});
  {
    Memory from(send_, 8, 4);
    EXPECT_EQ(done(post_send(from, 0)), Sizes{8});
  }
  close_send();
  usleep(50000);
  EXPECT_EQ(done(receive), Sizes{8});
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, SendCompletesIfThePeerReceivedItBeforeItClosed) {
  connect();
  Memory from(send_, 8, 4);
  void* send = nullptr;
  {
    Memory to(receive_, 8);
    void* receive = post_receive({&to}, {0});
    fake::nic().lose_acknowledgements = true;
    send = post_send(from, 0);
    EXPECT_EQ(done(receive), Sizes{8});
    EXPECT_EQ(done(send), Sizes{});
  }
  close_receive();
  Sizes sizes;
  while (sizes.empty()) {
    sizes = done(send);
    usleep(1000);
  }
  EXPECT_EQ(sizes, Sizes{8});
  EXPECT_TRUE(g_warnings.empty());
  void* request = kStale;
  EXPECT_EQ(net::isend(send_, from.bytes.data(), 8, 1, from.handle, nullptr, &request), Result::kRemoteError);
  EXPECT_EQ(request, nullptr);
}

TEST_F(NetTest, SendReportsAPeerThatDoesNotAnswer) {
  connect();
  Memory from(send_, 8), to(receive_, 8);
  post_receive({&to}, {0});
  fake::nic().lose_packets = true;
  void* send = post_send(from, 0);
  EXPECT_EQ(failure_of(send), Result::kRemoteError);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: the peer at 127.0.0.1 (through fake0) does not answer: its process died or the link is down; "
            "check that host and its cable (NCCL_MESH_TIMEOUT and NCCL_MESH_RETRY_CNT set the time limit)");
}

}  // namespace
}  // namespace mesh
