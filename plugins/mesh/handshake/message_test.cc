#include "plugins/mesh/handshake/message.h"

#include <gtest/gtest.h>

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
          Close{0x1122334455667788, true, make_nonce()}};
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
  parser.feed(encode(Close{.messages_received = 7}));
  EXPECT_EQ(std::get<Close>(*parser.next()).messages_received, 7u);
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
  const auto changed = [](const Message& message, std::size_t place, std::uint8_t byte, std::size_t cut = 0) {
    Bytes bytes = encode(message);
    bytes[place] = byte;
    bytes.resize(bytes.size() - cut);
    return bytes;
  };
  Endpoint wrong_mtu = endpoint(), wrong_number = endpoint();
  wrong_mtu.mtu = 6;
  wrong_number.queue_pair = 1u << 24;
  const std::pair<Bytes, const char*> cases[] = {
      {changed(Ready{}, 4, 1), "(version 1, expected 5)"},
      {changed(Ready{}, 5, 77), "(message type 77)"},
      {changed(Ready{}, 7, 0xff), "(too long)"},
      {changed(Close{.messages_received = 1}, 6, 7, 1), "(wrong length)"},
      {encode(Welcome{{wrong_mtu}, {}, {}}), "(invalid MTU)"},
      {encode(Welcome{{wrong_number}, {}, {}}), "(queue pair number or PSN of more than 24 bits)"},
      {encode(Welcome{{endpoint()}, {4097, 0, 0}, {}}), "(eager messages of 4097 bytes)"},
      {encode(Hello{.lanes = two_lanes(), .eager_bytes = 4097}), "(eager messages of 4097 bytes)"},
      {encode(Welcome{}), "(0 lanes)"},
      {encode(Hello{.lanes = std::vector<LaneOffer>(kMaxLanes + 1)}), "(5 lanes)"}};
  for (const auto& [bytes, why] : cases) EXPECT_NE(refusal_of(bytes).find(why), std::string::npos) << why;
}

}  // namespace
}  // namespace mesh
