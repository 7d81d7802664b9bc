#include "fabric/reduction/packet.h"

#include <gtest/gtest.h>

#include <vector>

namespace plugfest::reduction {
namespace {

std::vector<std::byte> packet_with(std::size_t payload_bytes) {
  std::vector<std::byte> packet(kPacketHeaderBytes + payload_bytes, std::byte{0x5a});
  const PacketHeader header = {.kind = PacketKind::kResult,
                               .dtype = 4,
                               .op = 2,
                               .empty = false,
                               .child = 3,
                               .group = 0x01020304,
                               .elements = static_cast<std::uint32_t>(payload_bytes / 4),
                               .slot = 0x1122334455667788};
  EXPECT_EQ(write_packet(header, payload_bytes, packet), packet.size());
  return packet;
}

TEST(Packet, HasTheFieldsThatWereWritten) {
  const std::vector<std::byte> bytes = packet_with(8);
  const std::optional<Packet> packet = parse_packet(bytes);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->kind, PacketKind::kResult);
  EXPECT_EQ(packet->dtype, 4);
  EXPECT_EQ(packet->op, 2);
  EXPECT_FALSE(packet->empty);
  EXPECT_EQ(packet->child, 3);
  EXPECT_EQ(packet->group, 0x01020304u);
  EXPECT_EQ(packet->elements, 2u);
  EXPECT_EQ(packet->slot, 0x1122334455667788u);
  EXPECT_EQ(packet->payload.size(), 8u);
  EXPECT_EQ(packet->payload.data(), bytes.data() + kPacketHeaderBytes);
}

TEST(Packet, IsRefusedIfAnyBitChanged) {
  const std::vector<std::byte> good = packet_with(8);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(parse_packet(bad)) << "bit " << bit;
  }
}

TEST(Packet, IsRefusedIfItIsTruncatedOrTooLong) {
  const std::vector<std::byte> good = packet_with(8);
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(parse_packet(std::span(good).first(size))) << size;
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 1);
  EXPECT_FALSE(parse_packet(longer));
}

TEST(Packet, IsRefusedIfItIsEmptyAndHasAPayload) {
  std::vector<std::byte> bytes(kPacketHeaderBytes + 4);
  write_packet({.empty = true, .elements = 1}, 4, bytes);
  EXPECT_FALSE(parse_packet(bytes));
  bytes.resize(kPacketHeaderBytes);
  write_packet({.empty = true, .elements = 1}, 0, bytes);
  EXPECT_TRUE(parse_packet(bytes));
}

}  // namespace
}  // namespace plugfest::reduction
