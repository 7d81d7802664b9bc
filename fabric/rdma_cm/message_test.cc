#include "fabric/rdma_cm/message.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <random>

namespace plugfest::rdma_cm {
namespace {

Message request() {
  Message message = {.type = MessageType::kRequest,
                     .qp_type = IBV_QPT_RC,
                     .port_space = 0x106,
                     .destination_port = 7471,
                     .source_port = 40000,
                     .qp_number = 0x123456,
                     .qkey = 0x01234567,
                     .psn = 0xfedcba,
                     .mtu = IBV_MTU_4096,
                     .responder_resources = 16,
                     .initiator_depth = 15,
                     .flow_control = 1,
                     .retry_count = 7,
                     .rnr_retry_count = 6,
                     .srq = 1,
                     .private_size = 3};
  message.private_data = {'a', 'b', 'c'};
  return message;
}

void expect_equal(const Message& message, const Message& other) {
  EXPECT_EQ(message.type, other.type);
  EXPECT_EQ(message.port_space, other.port_space);
  EXPECT_EQ(message.destination_port, other.destination_port);
  EXPECT_EQ(message.source_port, other.source_port);
  EXPECT_EQ(message.qp_number, other.qp_number);
  EXPECT_EQ(message.qkey, other.qkey);
  EXPECT_EQ(message.psn, other.psn);
  EXPECT_EQ(message.mtu, other.mtu);
  EXPECT_EQ(message.responder_resources, other.responder_resources);
  EXPECT_EQ(message.initiator_depth, other.initiator_depth);
  EXPECT_EQ(message.retry_count, other.retry_count);
  EXPECT_EQ(message.rnr_retry_count, other.rnr_retry_count);
  EXPECT_EQ(message.srq, other.srq);
  EXPECT_EQ(message.reason, other.reason);
  EXPECT_EQ(message.private_size, other.private_size);
  EXPECT_EQ(message.private_data, other.private_data);
}

TEST(Message, KeepsAllFields) {
  const std::optional<Message> decoded = decode(encode(request()));
  ASSERT_TRUE(decoded);
  expect_equal(*decoded, request());
}

TEST(Message, KeepsTheLongestPrivateDataOfEachType) {
  for (const MessageType type :
       {MessageType::kRequest, MessageType::kReply, MessageType::kReady, MessageType::kReject}) {
    Message message = request();
    message.type = type;
    message.private_data = {};
    message.private_size = static_cast<std::uint8_t>(max_private_bytes(type, false));
    for (std::size_t i = 0; i < message.private_size; ++i) message.private_data[i] = static_cast<std::uint8_t>(i + 1);
    const std::optional<Message> decoded = decode(encode(message));
    ASSERT_TRUE(decoded);
    expect_equal(*decoded, message);
  }
}

TEST(Message, RefusesFieldsThatNoSideSends) {
  const auto refuses = [](auto change) {
    Message message = request();
    change(message);
    return !decode(encode(message));
  };
  EXPECT_TRUE(refuses([](Message& m) { m.type = static_cast<MessageType>(0); }));
  EXPECT_TRUE(refuses([](Message& m) { m.type = static_cast<MessageType>(5); }));
  EXPECT_TRUE(refuses([](Message& m) { m.private_size = 57; }));
  EXPECT_TRUE(refuses([](Message& m) { m.qp_number = 1 << 24; }));
  EXPECT_TRUE(refuses([](Message& m) { m.psn = 1 << 24; }));
  EXPECT_TRUE(refuses([](Message& m) { m.retry_count = 8; }));
  EXPECT_TRUE(refuses([](Message& m) { m.mtu = IBV_MTU_4096 + 1; }));
  EXPECT_TRUE(refuses([](Message& m) { m.mtu = 0; }));
}

TEST(Message, RefusesAnotherProtocolAndVersion) {
  for (std::size_t at = 0; at < 5; ++at) {
    MessageBytes bytes = encode(request());
    bytes[at] ^= std::byte{1};
    EXPECT_FALSE(decode(bytes)) << at;
  }
}

TEST(Message, SurvivesRandomBytes) {
  std::mt19937 random(1);
  MessageBytes bytes = encode(request());
  for (int round = 0; round < 100'000; ++round) {
    MessageBytes damaged = bytes;
    for (int changes = 0; changes < 4; ++changes) damaged[5 + random() % 40] = static_cast<std::byte>(random());
    const std::optional<Message> decoded = decode(damaged);
    if (!decoded) continue;
    EXPECT_LE(decoded->private_size, max_private_bytes(decoded->type, is_datagram(decoded->port_space)));
  }
}

}  // namespace
}  // namespace plugfest::rdma_cm
