#include "fabric/roce/wire/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

namespace plugfest::roce {
namespace {

std::vector<std::byte> packet_of(const Headers& headers, std::size_t payload_bytes) {
  std::vector<std::byte> bytes(kMaxHeaderBytes);
  bytes.resize(encode(headers, bytes.data()));
  for (std::size_t i = 0; i < payload_bytes; ++i) bytes.push_back(static_cast<std::byte>(i));
  bytes.resize(bytes.size() + headers.pad_bytes + kIcrcBytes);
  return bytes;
}

std::vector<Operation> every_operation() {
  std::vector<Operation> all;
  for (unsigned i = 0; i < 32; ++i)
    if (traits_of(static_cast<Operation>(i)).known) all.push_back(static_cast<Operation>(i));
  return all;
}

TEST(Wire, CongestionNotificationIsABthWithBecnAndSixteenZeros) {
  Headers headers;
  headers.transport = Transport::kNotification;
  headers.operation = Operation::kCongestionNotification;
  headers.destination = 0xabcdef;
  const auto bytes = packet_of(headers, 0);
  const std::uint8_t expected[28] = {0x81, 0x40, 0xff, 0xff, 0x40, 0xab, 0xcd, 0xef};
  ASSERT_EQ(bytes.size(), sizeof(expected) + kIcrcBytes);
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof(expected)), 0);
  const auto packet = decode(bytes);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->headers.transport, Transport::kNotification);
  EXPECT_EQ(packet->headers.operation, Operation::kCongestionNotification);
  EXPECT_EQ(packet->headers.destination, 0xabcdefu);
  EXPECT_TRUE(packet->payload.empty());
}

TEST(Wire, NotificationOperationIsNotAnOpcode) {
  Headers headers;
  headers.operation = Operation::kCongestionNotification;
  EXPECT_FALSE(decode(packet_of(headers, 16)));
}

class Operations : public testing::TestWithParam<Transport> {};

TEST_P(Operations, AreDecodedAsTheyWereEncoded) {
  EXPECT_EQ(every_operation().size(), 23u);
  for (const Operation operation : every_operation()) {
    Headers headers;
    headers.transport = GetParam();
    headers.operation = operation;
    headers.shared_queue = 0xfecdab;
    headers.solicited = true;
    headers.ack_request = true;
    headers.pad_bytes = 3;
    headers.destination = 0xabcdef;
    headers.psn = Psn(0x123456);
    headers.address = 0x1122334455667788;
    headers.key = 0x99aabbcc;
    headers.length = 0x01020304;
    headers.swap_or_add = 5;
    headers.compare = 6;
    headers.syndrome = 0x63;
    headers.message_count = 0xfedcba;
    headers.original = 7;
    headers.immediate = 8;
    const auto bytes = packet_of(headers, 5);
    EXPECT_EQ(bytes.size(), header_bytes(GetParam(), operation) + 5 + 3 + kIcrcBytes);
    const auto packet = decode(bytes);
    ASSERT_TRUE(packet) << static_cast<int>(operation);
    const Headers& got = packet->headers;
    const OperationTraits& traits = traits_of(operation);
    EXPECT_EQ(got.transport, GetParam());
    EXPECT_EQ(got.operation, operation);
    EXPECT_EQ(got.shared_queue, GetParam() == Transport::kExtended && traits.request ? 0xfecdabu : 0);
    EXPECT_TRUE(got.solicited);
    EXPECT_TRUE(got.ack_request);
    EXPECT_EQ(got.destination, 0xabcdefu);
    EXPECT_EQ(destination_of(bytes.data()), 0xabcdefu);
    EXPECT_EQ(got.psn.value(), 0x123456u);
    EXPECT_EQ(packet->payload.size(), 5u);
    EXPECT_EQ(packet->payload[4], std::byte{4});
    EXPECT_EQ(got.length, traits.has_reth ? headers.length : 0);
    EXPECT_EQ(got.address, traits.has_reth || traits.has_atomic_eth ? headers.address : 0);
    EXPECT_EQ(got.key, traits.has_reth || traits.has_atomic_eth || traits.has_invalidate ? headers.key : 0);
    EXPECT_EQ(got.swap_or_add, traits.has_atomic_eth ? 5u : 0);
    EXPECT_EQ(got.compare, traits.has_atomic_eth ? 6u : 0);
    EXPECT_EQ(got.syndrome, traits.has_aeth ? 0x63 : 0);
    EXPECT_EQ(got.message_count, traits.has_aeth ? 0xfedcbau : 0);
    EXPECT_EQ(got.original, traits.has_atomic_ack ? 7u : 0);
    EXPECT_EQ(got.immediate, traits.has_immediate ? 8u : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Operations, testing::Values(Transport::kReliable, Transport::kExtended));

TEST(Wire, EncodesAWriteAsTheStandardSays) {
  Headers headers;
  headers.operation = Operation::kWriteOnlyImmediate;
  headers.solicited = true;
  headers.ack_request = true;
  headers.pad_bytes = 1;
  headers.destination = 0x010203;
  headers.psn = Psn(0x0a0b0c);
  headers.address = 0x1112131415161718;
  headers.key = 0x21222324;
  headers.length = 3;
  headers.immediate = 0;
  std::array<std::byte, kMaxHeaderBytes> bytes;
  ASSERT_EQ(encode(headers, bytes.data()), 32u);
  constexpr std::array<unsigned, 32> kExpected = {0x0b, 0xd0, 0xff, 0xff, 0,    1,    2,    3,    0x80, 0x0a, 0x0b,
                                                  0x0c, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22,
                                                  0x23, 0x24, 0,    0,    0,    3,    0,    0,    0,    0};
  for (std::size_t i = 0; i < kExpected.size(); ++i)
    EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), kExpected[i]) << "byte " << i;
}

TEST(Wire, RejectsTruncatedPackets) {
  for (const Operation operation : every_operation()) {
    Headers headers;
    headers.operation = operation;
    const auto whole = packet_of(headers, 64);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const auto packet = decode({whole.data(), length});
      if (!packet) continue;
      EXPECT_GE(packet->payload.data(), whole.data());
      EXPECT_LE(packet->payload.data() + packet->payload.size() + kIcrcBytes, whole.data() + length);
    }
    EXPECT_FALSE(decode({whole.data(), header_bytes(Transport::kReliable, operation) + kIcrcBytes - 1}));
  }
}

TEST(Wire, RejectsUnsupportedPackets) {
  Headers headers;
  headers.operation = Operation::kSendOnly;
  const auto good = packet_of(headers, 8);
  ASSERT_TRUE(decode(good));
  auto with = [&](std::size_t index, unsigned value) {
    auto bytes = good;
    bytes[index] = static_cast<std::byte>(value);
    return bytes;
  };
  EXPECT_FALSE(decode(with(0, 0x15))) << "an opcode that does not exist";
  EXPECT_FALSE(decode(with(0, 0x40))) << "a transport that is not offered";
  EXPECT_FALSE(decode(with(0, 0x60))) << "a datagram longer than a packet";
  EXPECT_FALSE(decode(with(1, 0x41))) << "transport version 1";
  EXPECT_FALSE(decode(with(3, 0x01))) << "another partition";
  EXPECT_TRUE(decode(with(2, 0x7f))) << "limited membership of the same partition";
  EXPECT_TRUE(decode(with(1, 0x00))) << "the migration bit as the kernel's rxe has it";
  EXPECT_FALSE(decode(std::vector<std::byte>(kMaxPacketBytes + 4))) << "longer than any packet";
}

TEST(Wire, SequenceNumbersWrap) {
  EXPECT_EQ(Psn(0xffffff) + 1, Psn(0));
  EXPECT_EQ(Psn(0).previous(), Psn(0xffffff));
  EXPECT_EQ(Psn(2).after(Psn(0xfffffe)), 4);
  EXPECT_EQ(Psn(0xfffffe).after(Psn(2)), -4);
  EXPECT_EQ(Psn(0x800000).after(Psn(0)), -0x800000);
}

TEST(Wire, RnrTimersEqualTheStandard) {
  EXPECT_EQ(rnr_delay_ns(0), 655'360'000);
  EXPECT_EQ(rnr_delay_ns(1), 10'000);
  EXPECT_EQ(rnr_delay_ns(12), 640'000);
  EXPECT_EQ(rnr_delay_ns(31), 491'520'000);
}

}  // namespace
}  // namespace plugfest::roce
