// Connections on the fake NIC: untrusted and forged handshakes, errors, and what each side knows when the other closes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <string>
#include <vector>

#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/handshake/message.h"
#include "plugins/mesh/handshake/socket.h"
#include "plugins/mesh/testing/net_fixture.h"

namespace mesh {

namespace {

Hello hello_to(const Secret& secret, const Nonce& nonce) {
  LaneOffer offer;
  offer.endpoint.mtu = 3;
  offer.peer = parse_address("127.0.0.1");
  return with_proof(Hello{secret.listener_id(), nonce, {offer}, {}}, secret, nonce);
}

// The listener's id is not encrypted, so an observer of the network knows it, and can repeat a whole Hello.
TEST_F(NetTest, ListenerRefusesForgedAndRepeatedHellos) {
  init();
  OpenListener listener(context_);
  const Handle handle = listener.handle();
  const Hello hello = hello_to(handle.secret, make_nonce());
  Hello forged = hello_to(Secret::make(), make_nonce());
  forged.listener = hello.listener;
  std::deque<PeerLink> links;
  for (const Hello& sent : {forged, hello, hello, hello_to(Secret::make(), make_nonce())}) {
    links.emplace_back(listener.dial());
    ASSERT_TRUE(links.back().send(sent));
  }
  const std::size_t before = fake::open_objects();
  void* receive = nullptr;
  ASSERT_EQ(listener.accept(&receive), Result::kSuccess);
  EXPECT_EQ(receive, nullptr);
  int refused = 0, welcome = 0;
  for (PeerLink& link : links) {
    const std::optional<Message> answer = link.receive();
    ASSERT_TRUE(answer);
    if (const auto* const refusal = std::get_if<Refused>(&*answer)) {
      EXPECT_EQ(refusal->reason, Refusal::kUnknownListener);
      ++refused;
    }
    welcome +=
        std::holds_alternative<Welcome>(*answer) && is_proven(std::get<Welcome>(*answer), handle.secret, hello.nonce);
  }
  EXPECT_EQ(refused, 3);
  EXPECT_EQ(welcome, 1);
  EXPECT_GT(fake::open_objects(), before);
  connect_to(listener);
}

TEST_F(NetTest, ListenerDropsAndCountsWhatIsInvalid) {
  init();
  OpenListener listener(context_);
  void* receive = nullptr;
  const Handle handle = listener.handle();
  const Hello hello = hello_to(handle.secret, make_nonce());
  const std::vector<std::uint8_t> good = encode(hello);
  std::vector<std::uint8_t> old = good, oversized = good, truncated = good, forged = good;
  old[4] = 2;
  oversized[7] = 0xff;
  truncated.resize(truncated.size() - 1);
  forged.back() ^= 1;
  const std::vector<std::uint8_t> unknown = encode(hello_to(Secret::make(), make_nonce()));
  std::vector<Socket> sockets;
  for (const auto& content : {old, oversized, std::vector<std::uint8_t>{'G', 'E', 'T'}, unknown, forged, good, good}) {
    sockets.push_back(listener.dial());
    ASSERT_EQ(::send(sockets.back().fd(), content.data(), content.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(content.size()));
  }
  {
    const Socket closing = listener.dial();
    ASSERT_EQ(::send(closing.fd(), truncated.data(), truncated.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(truncated.size()));
  }
  // The listener neither refuses a slow sender nor waits for it.
  const Socket slow = listener.dial();
  for (const std::uint8_t byte : encode(hello_to(handle.secret, make_nonce()))) {
    ASSERT_EQ(::send(slow.fd(), &byte, 1, MSG_NOSIGNAL), 1);
    ASSERT_EQ(listener.accept(&receive), Result::kSuccess);
    ASSERT_EQ(receive, nullptr);
  }
  PeerLink answer(Socket(dup(slow.fd())));
  EXPECT_TRUE(std::holds_alternative<Welcome>(*answer.receive()));
  connect_to(listener);
  g_lines.clear();
  EXPECT_EQ(net::close_listen(listener.release()), Result::kSuccess);
  EXPECT_THAT(g_lines,
              ::testing::Contains(::testing::HasSubstr(
                  "dropped connections: 1 to unknown listeners, 1 forged, 1 repeated, 3 malformed, 1 silent")));
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, ConnectRefusesAListenerThatDoesNotKnowTheSecret) {
  init();
  const Socket impostor = *listen_on(parse_address("127.0.0.1"), 0);
  const Handle handle = {.port = port_of(impostor),
                         .secret = Secret::make(),
                         .addresses = {{{parse_address("127.0.0.1"), 8}, true}},
                         .address_count = 1};
  HandleBytes bytes;
  encode_handle(handle, bytes);
  void* send = nullptr;
  ASSERT_EQ(net::connect(context_, 0, bytes.data(), &send, nullptr), Result::kSuccess);
  PeerLink link(Socket(::accept(impostor.fd(), nullptr, nullptr)));
  ASSERT_EQ(net::connect(context_, 0, bytes.data(), &send, nullptr), Result::kSuccess);
  const Hello hello = std::get<Hello>(*link.receive());
  ASSERT_TRUE(link.send(with_proof(Welcome{{hello.lanes.front().endpoint}, {}, {}}, Secret::make(), hello.nonce)));
  EXPECT_EQ(net::connect(context_, 0, bytes.data(), &send, nullptr), Result::kRemoteError);
  EXPECT_EQ(send, nullptr);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: the process at 127.0.0.1 port " + std::to_string(handle.port) +
                                   " is not the listener that made the handle");
}

TEST_F(NetTest, ConnectAsksForAddressesThatTheHandleLacks) {
  init();
  OpenListener listener(context_);
  const Handle handle = listener.handle();
  PeerLink link(listener.dial());
  const Nonce nonce = make_nonce();
  const Ask ask = {.listener = handle.secret.listener_id(), .nonce = nonce};
  ASSERT_TRUE(link.send(with_proof(ask, handle.secret, nonce)));
  void* receive = nullptr;
  ASSERT_EQ(listener.accept(&receive), Result::kSuccess);
  EXPECT_EQ(receive, nullptr);
  const Addresses list = std::get<Addresses>(*link.receive());
  EXPECT_EQ(list.addresses, handle.addresses);
  EXPECT_TRUE(is_proven(list, handle.secret, nonce));

  // A truncated handle whose only address is on no subnet of this host.
  Handle truncated = handle;
  truncated.addresses = {{{handle.addresses.front().network.address, 32}, true}};
  truncated.addresses.front().network.address.bytes[13] = 1;  // 127.1.0.1: routed, but not the address of a NIC
  truncated.address_count = 2;
  const Socket listening = *listen_on(truncated.addresses.front().network.address, 0);
  truncated.port = port_of(listening);
  encode_handle(truncated, listener.bytes);
  void* send = nullptr;
  ASSERT_EQ(listener.connect(&send), Result::kSuccess);
  PeerLink asking(Socket(::accept(listening.fd(), nullptr, nullptr)));
  ASSERT_EQ(listener.connect(&send), Result::kSuccess);
  EXPECT_EQ(std::get<Ask>(*asking.receive()).listener, handle.secret.listener_id());
}

TEST_F(NetTest, ConnectReportsAnInvalidHandle) {
  init();
  HandleBytes handle = {};
  void* send = kStale;
  EXPECT_EQ(net::connect(context_, 0, handle.data(), &send, nullptr), Result::kInvalidArgument);
  EXPECT_EQ(send, nullptr);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: connect: this plugin did not make the handle (wrong magic): use the same plugin on all ranks");
}

TEST_F(NetTest, ConnectReportsAClosedPort) {
  init();
  OpenListener listener(context_);
  ASSERT_EQ(net::close_listen(listener.release()), Result::kSuccess);
  const int port = listener.handle().port;
  void* send = nullptr;
  Result result = Result::kSuccess;
  while (result == Result::kSuccess) result = listener.connect(&send);
  EXPECT_EQ(result, Result::kRemoteError);
  EXPECT_EQ(send, nullptr);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: connect to 127.0.0.1 port " + std::to_string(port) +
                                   " was refused: the peer closed its listener or its process died; check its log");
}

TEST_F(NetTest, ConnectReportsAClosedListener) {
  init();
  OpenListener listener(context_), open(context_);
  ASSERT_EQ(net::close_listen(listener.release()), Result::kSuccess);
  void *send = nullptr, *receive = nullptr;
  Result result = Result::kSuccess;
  while (result == Result::kSuccess) {
    result = listener.connect(&send);
    ASSERT_EQ(open.accept(&receive), Result::kSuccess);
  }
  EXPECT_EQ(result, Result::kRemoteError);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: the peer at 127.0.0.1 does not know this handle: its listener was closed");
}

TEST_F(NetTest, ConnectReportsTheSubnetsOfAnUnreachablePeer) {
  init();
  Handle handle = {.port = 1, .addresses = {{{parse_address("fd12:3456::1"), 64}, true}}, .address_count = 1};
  HandleBytes bytes;
  encode_handle(handle, bytes);
  void* send = nullptr;
  EXPECT_EQ(net::connect(context_, 0, bytes.data(), &send, nullptr), Result::kSystemError);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: no NIC of this host reaches the peer: the subnets of this host are 127.0.0.0/8, the subnets of "
            "the peer are fd12:3456::/64; give both hosts an address on one subnet, or add a route, or set "
            "NCCL_MESH_RELAY_SECRET on all hosts to use relays");
}

TEST_F(NetTest, ConnectFindsAGidThatMoved) {
  init();
  OpenListener listener(context_);
  fake::nic().gids = {"", "", "127.0.0.1"};
  connect_to(listener);
  EXPECT_EQ(fake::gid_index_of_last_connection(), 3);
}

TEST_F(NetTest, ConnectReportsAGidThatDisappeared) {
  init();
  OpenListener listener(context_);
  void* send = nullptr;
  fake::nic().gids = {};
  EXPECT_EQ(listener.connect(&send), Result::kSystemError);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: the GID of 127.0.0.1 is no longer in the table of fake0: its address was removed or its "
            "interface went down; restore it");
  EXPECT_EQ(net::close_listen(listener.release()), Result::kSuccess);
  EXPECT_EQ(net::listen(context_, 0, listener.bytes.data(), &send), Result::kSystemError);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: listen: the NICs have lost all their addresses");
}

// The GID disappears while the TCP connection is being made.
TEST_F(NetTest, PeersReportAGidThatDisappearsDuringTheHandshake) {
  init();
  OpenListener listener(context_);
  void *send = nullptr, *receive = nullptr;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(listener.connect(&send), Result::kSuccess);
  fake::nic().gids = {};
  EXPECT_EQ(listener.accept(&receive), Result::kSystemError);
  EXPECT_THAT(g_warnings.back(), ::testing::HasSubstr("the GID of 127.0.0.1 is no longer in the table of fake0"));
  EXPECT_EQ(listener.connect(&send), Result::kRemoteError);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: the peer at 127.0.0.1 could not set up its queue pair; check its log");
}

TEST_F(NetTest, FinalizeEndsUnfinishedConnects) {
  init();
  OpenListener listener(context_);
  void* send = nullptr;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(listener.connect(&send), Result::kSuccess);
  void* receive = nullptr;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(listener.accept(&receive), Result::kSuccess);
  EXPECT_EQ(receive, nullptr);
  EXPECT_EQ(net::finalize(context_), Result::kSuccess);
  context_ = nullptr;
}

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

// The attacker can write to the TCP connection, but does not know the secret.
TEST_F(NetTest, ForgedCloseIsNotBelieved) {
  init();
  OpenListener listener(context_);
  const Handle handle = listener.handle();
  const Nonce nonce = make_nonce();
  for (const bool proven : {false, true}) {
    PeerLink link(listener.dial());
    const Hello hello = hello_to(handle.secret, make_nonce());
    ASSERT_TRUE(link.send(hello));
    void* receive = nullptr;
    ASSERT_EQ(listener.accept(&receive), Result::kSuccess);
    ASSERT_TRUE(std::holds_alternative<Welcome>(*link.receive()));
    ASSERT_TRUE(link.send(Ready{}));
    ASSERT_EQ(listener.accept(&receive), Result::kSuccess);
    ASSERT_NE(receive, nullptr);
    receive_ = receive;
    receives_.push_back(receive);
    Memory to(receive_, 8);
    void* request = post_receive({&to}, {0});
    const Close close = {.messages_received = 9, .of_listener = false};
    ASSERT_TRUE(link.send(with_proof(close, handle.secret, proven ? hello.nonce : nonce)));
    EXPECT_EQ(failure_of(request), Result::kRemoteError);
    EXPECT_THAT(g_warnings.back(), ::testing::HasSubstr(proven ? " closed the connection while this side still used it"
                                                               : " disconnected (it sent an invalid message)"));
  }
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
  while (sizes.empty()) sizes = done(send);
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
