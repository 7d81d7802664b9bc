// ICRCs equal the ICRCs of scapy's roce layer; IPv4 identifications are found from the ICRC.
#include "fabric/roce/wire/icrc.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <random>

#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {
namespace {

Flow test_flow() {
  in_addr source = {};
  in_addr destination = {};
  inet_pton(AF_INET, "192.168.100.1", &source);
  inet_pton(AF_INET, "192.168.100.2", &destination);
  Flow flow;
  flow.source = source;
  flow.destination = destination;
  flow.source_port = 0xc123;
  flow.destination_port = kRoceUdpPort;
  return flow;
}

// SEND Only to queue pair 0x010203, PSN 0x0a0b0c, acknowledgement asked for, payload 0, 1, … 39.
std::vector<std::byte> test_packet() {
  Headers headers;
  headers.operation = Operation::kSendOnly;
  headers.destination = 0x010203;
  headers.psn = Psn(0x0a0b0c);
  headers.ack_request = true;
  std::vector<std::byte> bytes(kMaxHeaderBytes);
  bytes.resize(encode(headers, bytes.data()));
  for (int i = 0; i < 40; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

std::uint32_t icrc_of(const std::vector<std::byte>& packet, std::uint16_t identification) {
  const std::uint32_t begun =
      start_icrc(test_flow(), identification, packet.size() + kIcrcBytes, packet.data(), kBthBytes);
  return crc32(begun, packet.data() + kBthBytes, packet.size() - kBthBytes);
}

TEST(Icrc, EqualsTheIcrcOfScapy) {
  // Least significant byte first, as on the wire.
  EXPECT_EQ(icrc_of(test_packet(), 0), 0x98e05a26u);
  EXPECT_EQ(icrc_of(test_packet(), 1), 0x64be9dbbu);
  EXPECT_EQ(icrc_of(test_packet(), 0xbeef), 0x0ba864eau);
}

TEST(Icrc, IgnoresCongestionBits) {
  auto marked = test_packet();
  marked[4] = std::byte{0xc0};
  EXPECT_EQ(icrc_of(marked, 0), icrc_of(test_packet(), 0));
}

TEST(Icrc, FindsEveryIdentification) {
  IdentificationSpan span;
  const auto packet = test_packet();
  const std::uint32_t with_zero = icrc_of(packet, 0);
  for (unsigned identification = 0; identification < 65536; ++identification)
    ASSERT_EQ(span.bits_for(with_zero ^ icrc_of(packet, static_cast<std::uint16_t>(identification)),
                            packet.size() + kIcrcBytes),
              identification);
}

TEST(Icrc, RejectsDifferencesOfAnotherLength) {
  IdentificationSpan span;
  const auto packet = test_packet();
  EXPECT_FALSE(span.explains(icrc_of(packet, 0) ^ icrc_of(packet, 1), packet.size() + kIcrcBytes + 4));
}

TEST(Icrc, RejectsAlmostAllRandomDamage) {
  IdentificationSpan span;
  std::mt19937 random(1);
  int explained = 0;
  for (int i = 0; i < 100000; ++i) explained += span.explains(static_cast<std::uint32_t>(random()), 1040) ? 1 : 0;
  EXPECT_LT(explained, 20);  // 1.5 expected: 2^16 of 2^32 differences
}

TEST(Icrc, DetectsEachInvertedBit) {
  IdentificationSpan span;
  const auto packet = test_packet();
  const std::uint32_t right = icrc_of(packet, 0);
  for (std::size_t bit = 0; bit < packet.size() * 8; ++bit) {
    if (bit / 8 == 4) continue;  // masked
    auto damaged = packet;
    damaged[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(span.explains(right ^ icrc_of(damaged, 0), packet.size() + kIcrcBytes)) << "bit " << bit;
  }
}

}  // namespace
}  // namespace plugfest::roce
