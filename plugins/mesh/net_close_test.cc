// Closed connections and lost peers, as the other side sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "plugins/mesh/handshake/message.h"
#include "plugins/mesh/handshake/socket.h"
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

// Somebody who can write to the TCP connection, but does not know the secret.
TEST_F(NetTest, ForgedGoodbyeIsNotBelieved) {
  init();
  HandleBytes bytes;
  void* listener = nullptr;
  ASSERT_EQ(net::listen(context_, 0, bytes.data(), &listener), Result::kSuccess);
  const Handle handle = decode_handle(bytes);
  const Nonce nonce = make_nonce();
  for (const bool proven : {false, true}) {
    PeerLink link(begin_connect(std::nullopt, handle.addresses.front().network.address, handle.port));
    Hello hello = {.listener = handle.secret.listener_id(), .nonce = make_nonce(), .lanes = {{}}};
    hello.lanes.front().peer = handle.addresses.front().network.address;
    hello.lanes.front().endpoint.mtu = 3;
    ASSERT_TRUE(link.send(with_proof(hello, handle.secret, hello.nonce)));
    void* receive = nullptr;
    ASSERT_EQ(net::accept(listener, &receive, nullptr), Result::kSuccess);
    ASSERT_TRUE(std::holds_alternative<Welcome>(*link.receive()));
    ASSERT_TRUE(link.send(Ready{}));
    ASSERT_EQ(net::accept(listener, &receive, nullptr), Result::kSuccess);
    ASSERT_NE(receive, nullptr);
    receive_ = receive;
    receives_.push_back(receive);
    Memory to(receive_, 8);
    void* request = post_receive({&to}, {0});
    const Goodbye goodbye = {.messages_received = 9, .of_listener = false};
    ASSERT_TRUE(link.send(with_proof(goodbye, handle.secret, proven ? hello.nonce : nonce)));
    EXPECT_EQ(failure_of(request), Result::kRemoteError);
    EXPECT_THAT(g_warnings.back(), ::testing::HasSubstr(proven ? " closed the connection while this side still used it"
                                                               : " disconnected (it sent an invalid message)"));
  }
  EXPECT_EQ(net::close_listen(listener), Result::kSuccess);
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
