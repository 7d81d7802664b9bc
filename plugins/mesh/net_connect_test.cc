// Listen, connect, accept: in any order, with strangers, with handles that lead nowhere.
#include <gtest/gtest.h>

#include <vector>

#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/handshake/socket.h"
#include "plugins/mesh/testing/net_fixture.h"

namespace mesh {
namespace {

TEST_F(NetTest, ManyConnectionsFinishWhateverTheOrder) {
  init();
  constexpr std::size_t kCount = 64;
  std::vector<HandleBytes> handles(kCount);
  std::vector<void*> listeners(kCount), sends(kCount), receives(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    ASSERT_EQ(net::listen(context_, 0, handles[i].data(), &listeners[i]), Result::kSuccess);
  for (int round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(net::connect(context_, 0, handles[i].data(), &sends[i], nullptr), Result::kSuccess);
      EXPECT_EQ(sends[i], nullptr);
    }
  }
  for (int round = 0; round < 100; ++round) {
    for (std::size_t i = kCount; i-- > 0;) {
      if (receives[i] == nullptr) {
        ASSERT_EQ(net::accept(listeners[i], &receives[i], nullptr), Result::kSuccess);
      }
      if (sends[i] == nullptr) {
        ASSERT_EQ(net::connect(context_, 0, handles[i].data(), &sends[i], nullptr), Result::kSuccess);
      }
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_NE(sends[i], nullptr);
    ASSERT_NE(receives[i], nullptr);
    EXPECT_EQ(net::close_listen(listeners[i]), Result::kSuccess);
  }
  sends_ = sends;
  receives_ = receives;
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, AListenerTakesSeveralConnections) {
  init();
  HandleBytes handle;
  void* listener = nullptr;
  ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  for (std::uint8_t i = 0; i < 8; ++i) {
    connect_to(listener, handle);
    Memory from(send_, 8, i), to(receive_, 8);
    void* receive = post_receive({&to}, {0});
    EXPECT_EQ(done(post_send(from, 0)), Sizes{8});
    EXPECT_EQ(done(receive), Sizes{8});
    EXPECT_EQ(to.bytes, from.bytes);
  }
  EXPECT_EQ(net::close_listen(listener), Result::kSuccess);
}

TEST_F(NetTest, StrangersOnThePortDisturbNobody) {
  init();
  HandleBytes bytes;
  void* listener = nullptr;
  ASSERT_EQ(net::listen(context_, 0, bytes.data(), &listener), Result::kSuccess);
  const Handle handle = decode_handle(bytes);
  std::vector<Socket> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(begin_connect(std::nullopt, handle.addresses.front().network.address, handle.port));
    const char text[] = "GET / HTTP/1.0\r\n\r\n";
    if (i % 2 == 0) {
      ASSERT_GT(::send(strangers.back().fd(), text, sizeof text, MSG_NOSIGNAL), 0);
    }
  }
  PeerLink wrong(begin_connect(std::nullopt, handle.addresses.front().network.address, handle.port));
  Hello hello = {.nonce = make_nonce(), .endpoint = {}};
  hello.endpoint.mtu = 3;
  ASSERT_TRUE(wrong.send(hello));
  connect_to(listener, bytes);
  EXPECT_EQ(std::get<Refused>(*wrong.receive()).reason, Refusal::kUnknownListener);
  EXPECT_EQ(net::close_listen(listener), Result::kSuccess);
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(NetTest, AskedForTheRestItTellsAllAddresses) {
  init();
  HandleBytes bytes;
  void* listener = nullptr;
  ASSERT_EQ(net::listen(context_, 0, bytes.data(), &listener), Result::kSuccess);
  const Handle handle = decode_handle(bytes);
  PeerLink link(begin_connect(std::nullopt, handle.addresses.front().network.address, handle.port));
  ASSERT_TRUE(link.send(Ask{handle.nonce}));
  void* nothing = nullptr;
  ASSERT_EQ(net::accept(listener, &nothing, nullptr), Result::kSuccess);
  EXPECT_EQ(nothing, nullptr);
  EXPECT_EQ(std::get<Addresses>(*link.receive()).addresses, handle.addresses);

  // A handle that has no room for the address that fits: connect asks, and finds the way.
  Handle cut = handle;
  cut.addresses = {{{handle.addresses.front().network.address, 32}, true}};
  cut.addresses.front().network.address.bytes[13] = 1;  // 127.1.0.1: not a NIC's, and routed
  cut.address_count = 2;
  const Socket elsewhere = *listen_at(cut.addresses.front().network.address, 0);
  cut.port = port_of(elsewhere);
  encode_handle(cut, bytes);
  void* send = nullptr;
  ASSERT_EQ(net::connect(context_, 0, bytes.data(), &send, nullptr), Result::kSuccess);
  PeerLink asking(Socket(::accept(elsewhere.fd(), nullptr, nullptr)));
  ASSERT_EQ(net::connect(context_, 0, bytes.data(), &send, nullptr), Result::kSuccess);
  EXPECT_EQ(std::get<Ask>(*asking.receive()).nonce, handle.nonce);
  EXPECT_EQ(net::close_listen(listener), Result::kSuccess);
}

TEST_F(NetTest, ABadHandleIsNamed) {
  init();
  HandleBytes handle = {};
  void* send = kStale;
  EXPECT_EQ(net::connect(context_, 0, handle.data(), &send, nullptr), Result::kInvalidArgument);
  EXPECT_EQ(send, nullptr);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: connect got a handle that no listener of this plugin made (wrong magic): use one plugin on all "
            "ranks");
}

TEST_F(NetTest, AClosedListenerIsNamed) {
  init();
  HandleBytes handle;
  void* listener = nullptr;
  ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  ASSERT_EQ(net::close_listen(listener), Result::kSuccess);
  const int port = decode_handle(handle).port;
  void* send = nullptr;
  Result result = Result::kSuccess;
  while (result == Result::kSuccess) {
    result = net::connect(context_, 0, handle.data(), &send, nullptr);
  }
  EXPECT_EQ(result, Result::kRemoteError);
  EXPECT_EQ(send, nullptr);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: nothing listens at 127.0.0.1 port " + std::to_string(port) +
                                   ": the peer closed its listener or its process died; look at its log");
}

TEST_F(NetTest, AHandleOfAClosedListenerBesideOpenOnesIsRefused) {
  init();
  HandleBytes handle, other;
  void *listener = nullptr, *open = nullptr;
  ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  ASSERT_EQ(net::listen(context_, 0, other.data(), &open), Result::kSuccess);
  ASSERT_EQ(net::close_listen(listener), Result::kSuccess);
  void *send = nullptr, *receive = nullptr;
  Result result = Result::kSuccess;
  while (result == Result::kSuccess) {
    result = net::connect(context_, 0, handle.data(), &send, nullptr);
    ASSERT_EQ(net::accept(open, &receive, nullptr), Result::kSuccess);
  }
  EXPECT_EQ(result, Result::kRemoteError);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: the peer at 127.0.0.1 does not know this handle: its listener was closed");
  EXPECT_EQ(net::close_listen(open), Result::kSuccess);
}

TEST_F(NetTest, APeerOnNoSubnetIsNamedWithBothSides) {
  init();
  Handle handle = {.port = 1, .addresses = {{{parse_address("fd12:3456::1"), 64}, true}}, .address_count = 1};
  HandleBytes bytes;
  encode_handle(handle, bytes);
  void* send = nullptr;
  EXPECT_EQ(net::connect(context_, 0, bytes.data(), &send, nullptr), Result::kSystemError);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: no NIC here reaches the peer: subnets here are 127.0.0.0/8, those of the peer are "
            "fd12:3456::/64; give both hosts an address on one subnet, or add a route");
}

TEST_F(NetTest, AnAbandonedConnectIsForgottenByFinalize) {
  init();
  HandleBytes handle;
  void *listener = nullptr, *send = nullptr;
  ASSERT_EQ(net::listen(context_, 0, handle.data(), &listener), Result::kSuccess);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(net::connect(context_, 0, handle.data(), &send, nullptr), Result::kSuccess);
  void* receive = nullptr;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(net::accept(listener, &receive, nullptr), Result::kSuccess);
  EXPECT_EQ(receive, nullptr);
  EXPECT_EQ(net::finalize(context_), Result::kSuccess);
  context_ = nullptr;
  EXPECT_EQ(net::close_listen(listener), Result::kSuccess);
}

}  // namespace
}  // namespace mesh
