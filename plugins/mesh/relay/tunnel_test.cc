#include "plugins/mesh/relay/tunnel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <random>

#include "fabric/system/testing.h"
#include "plugins/mesh/relay/tunnel_server.h"

namespace mesh {
namespace {

const Secret kKey = relay_key("a secret of this test");
const Secret kOther = relay_key("another secret of it");

TEST(TunnelTest, DecodesWhatItEncodes) {
  const Nonce nonce = make_nonce();
  EXPECT_EQ(decode_query(encode(Query{nonce}, kKey), kKey)->nonce, nonce);
  const Answer answer = *decode_answer(encode(Answer{nonce, 0x1122334455667788, 4711}, kKey), kKey, nonce);
  EXPECT_EQ(answer.host, 0x1122334455667788u);
  EXPECT_EQ(answer.port, 4711);
  EXPECT_EQ(decode_greeting(encode(Greeting{nonce}))->nonce, nonce);
  const Request request = {3, 99, {parse_address("10.0.0.1"), parse_address("fd00::1")}};
  const Request back = *decode_request(encode(request, kKey, nonce), kKey, nonce);
  EXPECT_EQ(back.hops, 3);
  EXPECT_EQ(back.port, 99);
  EXPECT_EQ(back.addresses, request.addresses);
  EXPECT_EQ(decode_status(encode(TunnelStatus::kNoPath, kKey, nonce), kKey, nonce), TunnelStatus::kNoPath);
}

TEST(TunnelTest, RefusesMessagesWithAnotherSecretOrNonce) {
  const Nonce nonce = make_nonce(), other = make_nonce();
  const Request request = {1, 99, {parse_address("10.0.0.1")}};
  EXPECT_FALSE(decode_query(encode(Query{nonce}, kOther), kKey));
  EXPECT_FALSE(decode_answer(encode(Answer{nonce, 1, 2}, kOther), kKey, nonce));
  EXPECT_FALSE(decode_answer(encode(Answer{other, 1, 2}, kKey), kKey, nonce));
  EXPECT_FALSE(decode_request(encode(request, kOther, nonce), kKey, nonce));
  EXPECT_FALSE(decode_request(encode(request, kKey, other), kKey, nonce)) << "a recorded request";
  EXPECT_FALSE(decode_status(encode(TunnelStatus::kOpen, kOther, nonce), kKey, nonce));
}

TEST(TunnelTest, RefusesInvalidRequests) {
  const Nonce nonce = make_nonce();
  const std::vector<Address> target = {parse_address("10.0.0.1")};
  EXPECT_TRUE(decode_request(encode(Request{kMaxHops, 1, target}, kKey, nonce), kKey, nonce));
  EXPECT_FALSE(decode_request(encode(Request{kMaxHops + 1, 1, target}, kKey, nonce), kKey, nonce));
  EXPECT_FALSE(decode_request(encode(Request{0, 1, target}, kKey, nonce), kKey, nonce));
  EXPECT_FALSE(decode_request(encode(Request{1, 0, target}, kKey, nonce), kKey, nonce));
  EXPECT_FALSE(decode_request(encode(Request{1, 1, {}}, kKey, nonce), kKey, nonce));
}

TEST(TunnelTest, RefusesChangedAndTruncatedMessages) {
  const Nonce nonce = make_nonce();
  const std::vector<std::uint8_t> good = encode(Request{1, 99, {parse_address("10.0.0.1")}}, kKey, nonce);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<std::uint8_t> bytes = good;
    bytes[i] ^= 1;
    EXPECT_FALSE(decode_request(bytes, kKey, nonce)) << i;
    bytes.resize(i);
    EXPECT_FALSE(decode_request(bytes, kKey, nonce)) << i;
  }
}

TEST(TunnelTest, DecodesOrRefusesRandomBytes) {
  std::mt19937 random(3);
  const std::vector<std::uint8_t> good = encode(Query{}, kKey);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::uint8_t> bytes = good;
    for (std::size_t changes = random() % 4 + 1; changes > 0; --changes)
      bytes[random() % bytes.size()] ^= static_cast<std::uint8_t>(1u << random() % 8);
    bytes.resize(random() % (bytes.size() + 1));
    decode_greeting(bytes);
    EXPECT_EQ(decode_query(bytes, kKey).has_value(), bytes == good);
  }
}

class TunnelServerTest : public testing::Test {
 protected:
  static bool is_readable(const Socket& socket) {
    pollfd poll = {socket.fd(), POLLIN, 0};
    return ::poll(&poll, 1, 0) > 0;
  }

  /// A connection that sends nothing.
  Socket connect() {
    Socket socket = begin_connect(std::nullopt, addresses_.front().network.address, server_.port());
    EXPECT_TRUE(plugfest::wait_until([&] { return connect_result(socket).has_value(); }));
    return socket;
  }

  /// Whether the server greets a new connection.
  bool accepts() {
    const Socket socket = connect();
    server_.serve();
    MessageReader reader;
    return is_readable(socket) && reader.read(socket) != MessageReader::Result::kFailed;
  }

  const std::vector<LocalAddress> addresses_ = {{{parse_address("127.0.0.1"), 8}, 0}};
  NeighborFinder finder_{addresses_, kKey, 14790};
  TunnelServer server_{addresses_, kKey, finder_};
};

TEST_F(TunnelServerTest, ANewConnectionTakesThePlaceOfASilentOne) {
  std::vector<Socket> silent;
  for (int i = 0; i < 256; ++i) {
    silent.push_back(connect());
    server_.serve();
  }
  EXPECT_FALSE(accepts());
  EXPECT_TRUE(plugfest::wait_until([&] { return accepts(); }));
  EXPECT_TRUE(is_readable(silent.front()));
}

TEST_F(TunnelServerTest, DoesNotWaitForAConnectionThatItCannotAccept) {
  const Socket client = connect();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  server_.serve();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<pollfd> waits;
  EXPECT_TRUE(server_.add_waits(waits)) << "the relay must try again soon";
  EXPECT_TRUE(waits.empty());
  server_.serve();
  EXPECT_TRUE(is_readable(client));
  EXPECT_FALSE(server_.is_idle());
}

}  // namespace
}  // namespace mesh
