#include "plugins/mesh/handshake/message.h"

#include <gtest/gtest.h>

#include <random>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

using Bytes = std::vector<std::uint8_t>;

Endpoint endpoint() {
  return {.gid = parse_address("192.168.101.2"),
          .queue_pair = 0x123456,
          .packet_sequence = 0xfedcba,
          .max_message_bytes = 1u << 31,
          .mtu = 5};
}

std::vector<LaneOffer> two_lanes() {
  return {{endpoint(), parse_address("192.168.101.3")}, {endpoint(), parse_address("fd00::3")}};
}

std::vector<Message> one_of_each() {
  return {Hello{make_nonce(), make_nonce(), two_lanes(), 4096, make_nonce()},
          Welcome{{endpoint(), endpoint()}, {4096, 7, 0x1122334455667788}, make_nonce()},
          Ready{},
          Refused{Refusal::kNoResources},
          Ask{make_nonce(), make_nonce(), make_nonce()},
          Addresses{{{{parse_address("10.0.0.1"), 30}, true}, {{parse_address("fd00::1"), 64}, false}}, make_nonce()},
          Goodbye{0x1122334455667788, true, make_nonce()}};
}

std::string refusal_of(const Bytes& bytes) {
  MessageParser parser;
  parser.feed(bytes);
  try {
    return parser.next() ? "accepted" : "waits for more";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), Result::kRemoteError);
    return failure.what();
  }
}

TEST(MessageTest, ParsesWhatItEncodes) {
  MessageParser parser;
  for (const Message& message : one_of_each()) parser.feed(encode(message));
  for (const Message& message : one_of_each()) {
    const std::optional<Message> back = parser.next();
    ASSERT_TRUE(back);
    ASSERT_EQ(back->index(), message.index());
  }
  EXPECT_FALSE(parser.next());

  parser.feed(encode(Hello{.lanes = two_lanes()}));
  EXPECT_EQ(std::get<Hello>(*parser.next()).lanes, two_lanes());
  parser.feed(encode(one_of_each()[0]));
  EXPECT_EQ(std::get<Hello>(*parser.next()).eager_bytes, 4096u);
  const Bounce bounce = {4096, 7, 0x1122334455667788};
  parser.feed(encode(Welcome{{endpoint()}, bounce, {}}));
  const Welcome welcome = std::get<Welcome>(*parser.next());
  EXPECT_EQ(welcome.endpoints, std::vector{endpoint()});
  EXPECT_EQ(welcome.bounce, bounce);
  parser.feed(encode(one_of_each()[5]));
  const Addresses list = std::get<Addresses>(*parser.next());
  EXPECT_EQ(list.addresses, std::get<Addresses>(one_of_each()[5]).addresses);
  parser.feed(encode(Goodbye{.messages_received = 7}));
  EXPECT_EQ(std::get<Goodbye>(*parser.next()).messages_received, 7u);
}

TEST(MessageTest, ParsesMessagesByteByByte) {
  for (const Message& message : one_of_each()) {
    MessageParser parser;
    const Bytes bytes = encode(message);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      EXPECT_FALSE(parser.next());
      parser.feed(std::span(bytes).subspan(i, 1));
    }
    EXPECT_TRUE(parser.next());
  }
}

TEST(MessageTest, RefusesAWrongMagicAtItsFirstByte) {
  const std::string refusal =
      "the peer sent an invalid handshake message (wrong magic): use the same plugin on all ranks";
  EXPECT_EQ(refusal_of({'G', 'E', 'T', ' ', '/'}), refusal);
  EXPECT_EQ(refusal_of({'G'}), refusal);
  EXPECT_EQ(refusal_of({'M', 'S', 'H'}), "waits for more");
}

TEST(MessageTest, ReportsWhatIsInvalid) {
  Bytes bytes = encode(Ready{});
  bytes[4] = 1;
  EXPECT_NE(refusal_of(bytes).find("(version 1, expected 5)"), std::string::npos);
  bytes = encode(Ready{});
  bytes[5] = 77;
  EXPECT_NE(refusal_of(bytes).find("(message type 77)"), std::string::npos);
  bytes = encode(Ready{});
  bytes[7] = 0xff;
  EXPECT_NE(refusal_of(bytes).find("(too long)"), std::string::npos);
  bytes = encode(Goodbye{.messages_received = 1});
  bytes[6] = 7;
  bytes.pop_back();
  EXPECT_NE(refusal_of(bytes).find("(wrong length)"), std::string::npos);
  Endpoint wrong = endpoint();
  wrong.mtu = 6;
  EXPECT_NE(refusal_of(encode(Welcome{{wrong}, {}, {}})).find("(invalid MTU)"), std::string::npos);
  wrong = endpoint();
  wrong.queue_pair = 1u << 24;
  EXPECT_NE(refusal_of(encode(Welcome{{wrong}, {}, {}})).find("(queue pair number or PSN of more than 24 bits)"),
            std::string::npos);
  EXPECT_NE(refusal_of(encode(Welcome{{endpoint()}, {4097, 0, 0}, {}})).find("(eager messages of 4097 bytes)"),
            std::string::npos);
  EXPECT_NE(refusal_of(encode(Hello{.lanes = two_lanes(), .eager_bytes = 4097})).find("(eager messages of 4097 bytes)"),
            std::string::npos);
  EXPECT_NE(refusal_of(encode(Welcome{})).find("(0 lanes)"), std::string::npos);
  const Hello too_many = {.lanes = std::vector<LaneOffer>(kMaxLanes + 1)};
  EXPECT_NE(refusal_of(encode(too_many)).find("(5 lanes)"), std::string::npos);
}

TEST(MessageTest, ParsesOrRefusesRandomStreams) {
  std::mt19937 random(11);
  for (int i = 0; i < 20000; ++i) {
    Bytes stream;
    for (const Message& message : one_of_each()) {
      const Bytes bytes = encode(message);
      if (random() % 2 != 0) stream.insert(stream.end(), bytes.begin(), bytes.end());
    }
    for (std::size_t changes = random() % 4; changes > 0 && !stream.empty(); --changes)
      stream[random() % stream.size()] = static_cast<std::uint8_t>(random());
    MessageParser parser;
    try {
      parser.feed(stream);
      while (parser.next()) {
      }
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), Result::kRemoteError);
    }
  }
}

}  // namespace
}  // namespace mesh
