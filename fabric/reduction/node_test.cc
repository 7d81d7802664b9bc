#include "fabric/reduction/node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "fabric/reduction/operation.h"

namespace plugfest::reduction {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kGroup = 9;

Bytes packet_of(PacketHeader header, std::span<const std::byte> payload) {
  Bytes packet(kPacketHeaderBytes + payload.size());
  std::copy(payload.begin(), payload.end(), packet.begin() + kPacketHeaderBytes);
  write_packet(header, payload.size(), packet);
  return packet;
}

// A root with two children, and the packets that it sends.
class RootTest : public ::testing::Test {
 protected:
  static constexpr Address kA = {1, 5000}, kB = {2, 5001};

  RootTest()
      : node_([this](const Address& to, std::span<const std::byte> packet) {
          sent_.emplace_back(to, Bytes(packet.begin(), packet.end()));
        }) {
    node_.configure({.group = kGroup, .fragment_window = 1, .max_payload = 32, .parent = {}, .children = {kA, kB}});
  }

  Bytes packet(std::uint16_t child, std::uint64_t slot, std::initializer_list<std::int32_t> values) {
    const std::vector<std::int32_t> elements(values);
    return packet_of({.kind = PacketKind::kContribution,
                      .dtype = static_cast<std::uint8_t>(DataType::kSigned32),
                      .op = static_cast<std::uint8_t>(Operator::kSum),
                      .empty = false,
                      .child = child,
                      .group = kGroup,
                      .elements = static_cast<std::uint32_t>(elements.size()),
                      .slot = slot},
                     std::as_bytes(std::span(elements)));
  }

  Bytes changed(Bytes packet, const std::function<void(PacketHeader&)>& change) {
    Packet parsed = *parse_packet(packet);
    change(parsed);
    return packet_of(parsed, Bytes(parsed.payload.begin(), parsed.payload.end()));
  }

  std::vector<std::int32_t> values_of(const Bytes& packet) {
    const std::span<const std::byte> payload = parse_packet(packet)->payload;
    std::vector<std::int32_t> values(payload.size() / 4);
    std::memcpy(values.data(), payload.data(), payload.size());
    return values;
  }

  std::uint64_t drops(Drop reason) { return node_.counters().drops[static_cast<std::size_t>(reason)]; }

  std::vector<std::pair<Address, Bytes>> sent_;
  AggregationNode node_;
};

TEST_F(RootTest, SendsTheSumToEachChildWhenAllHaveContributed) {
  node_.receive(kA, packet(0, 0, {1, 2}));
  EXPECT_TRUE(sent_.empty());
  node_.receive(kB, packet(1, 0, {10, 20}));
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].first, kA);
  EXPECT_EQ(sent_[1].first, kB);
  for (const auto& [to, bytes] : sent_) EXPECT_EQ(values_of(bytes), (std::vector<std::int32_t>{11, 22}));
}

TEST_F(RootTest, AnswersARepeatedContributionToItsChildOnly) {
  node_.receive(kA, packet(0, 0, {1}));
  node_.receive(kA, packet(0, 0, {1}));
  EXPECT_TRUE(sent_.empty());
  node_.receive(kB, packet(1, 0, {2}));
  sent_.clear();
  node_.receive(kB, packet(1, 0, {2}));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].first, kB);
  EXPECT_EQ(values_of(sent_[0].second), std::vector<std::int32_t>{3});
  EXPECT_EQ(node_.counters().repeats, 2u);
}

TEST_F(RootTest, TakesEmptyContributionsForZeros) {
  const auto empty = [&](std::uint16_t child, std::uint64_t slot) {
    return packet_of({.kind = PacketKind::kContribution,
                      .dtype = static_cast<std::uint8_t>(DataType::kSigned32),
                      .op = static_cast<std::uint8_t>(Operator::kSum),
                      .empty = true,
                      .child = child,
                      .group = kGroup,
                      .elements = 2,
                      .slot = slot},
                     {});
  };
  node_.receive(kA, empty(0, 0));
  node_.receive(kB, packet(1, 0, {7, 8}));
  EXPECT_EQ(values_of(sent_.back().second), (std::vector<std::int32_t>{7, 8}));
  node_.receive(kA, empty(0, 1));
  node_.receive(kB, empty(1, 1));
  EXPECT_EQ(values_of(sent_.back().second), (std::vector<std::int32_t>{0, 0}));
}

TEST_F(RootTest, DropsAndCountsWhatDoesNotBelongToIt) {
  node_.receive(kA, Bytes(100));
  EXPECT_EQ(drops(Drop::kMalformed), 1u);
  node_.receive(kA, changed(packet(0, 0, {1}), [](PacketHeader& header) { header.group = 10; }));
  EXPECT_EQ(drops(Drop::kUnknownGroup), 1u);
  node_.receive(kB, packet(0, 0, {1}));
  node_.receive({kA.ip, 1}, packet(0, 0, {1}));
  node_.receive(kA, packet(2, 0, {1}));
  node_.receive(kA, changed(packet(0, 0, {1}), [](PacketHeader& header) { header.kind = PacketKind::kResult; }));
  EXPECT_EQ(drops(Drop::kForeign), 4u);
  node_.receive(kA, changed(packet(0, 0, {1}), [](PacketHeader& header) { header.elements = 2; }));
  node_.receive(kA, changed(packet(0, 0, {1}), [](PacketHeader& header) { header.dtype = 12; }));
  node_.receive(kA, changed(packet(0, 0, {1}), [](PacketHeader& header) { header.op = 10; }));
  node_.receive(kA, packet(0, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9}));  // more than max_payload
  EXPECT_EQ(drops(Drop::kMismatch), 4u);
  node_.receive(kA, packet(0, 0, {1}));
  node_.receive(kB, packet(1, 0, {1, 2}));
  node_.receive(kB, changed(packet(1, 0, {1}), [](PacketHeader& header) { header.op = 0; }));
  EXPECT_EQ(drops(Drop::kMismatch), 6u);
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(node_.counters().contributions, 1u);
}

TEST_F(RootTest, GivesASlotToALaterFragmentOnlyOnceItsResultIsKnown) {
  node_.receive(kA, packet(0, 0, {1}));
  node_.receive(kA, packet(0, 2, {1}));
  node_.receive(kA, packet(0, 5, {1}));  // its slot is new, but fragment 1 is missing
  EXPECT_EQ(drops(Drop::kOutOfWindow), 2u);
  node_.receive(kB, packet(1, 0, {1}));
  node_.receive(kA, packet(0, 2, {5}));
  node_.receive(kB, packet(1, 0, {1}));  // late
  EXPECT_EQ(drops(Drop::kOutOfWindow), 3u);
  node_.receive(kB, packet(1, 2, {5}));
  EXPECT_EQ(values_of(sent_.back().second), std::vector<std::int32_t>{10});
}

TEST_F(RootTest, GivesTheSameBitsInAnyOrderOfArrival) {
  const auto with = [&](std::uint16_t child, std::uint64_t slot, float value, Operator op) {
    return packet_of({.kind = PacketKind::kContribution,
                      .dtype = static_cast<std::uint8_t>(DataType::kFloat),
                      .op = static_cast<std::uint8_t>(op),
                      .empty = false,
                      .child = child,
                      .group = kGroup,
                      .elements = 1,
                      .slot = slot},
                     std::as_bytes(std::span(&value, 1)));
  };
  std::uint64_t slot = 0;
  for (const Operator op : {Operator::kMax, Operator::kMin}) {
    node_.receive(kA, with(0, slot, 0.0f, op));
    node_.receive(kB, with(1, slot, -0.0f, op));
    const std::vector<std::int32_t> first = values_of(sent_.back().second);
    ++slot;
    node_.receive(kB, with(1, slot, -0.0f, op));
    node_.receive(kA, with(0, slot, 0.0f, op));
    EXPECT_EQ(values_of(sent_.back().second), first);
    ++slot;
  }
}

TEST_F(RootTest, GivesZeroOrOneForLogicalOperatorsAlsoWithOneContribution) {
  node_.receive(kA, changed(packet(0, 0, {5, 0}), [](PacketHeader& header) { header.op = 8; }));
  const PacketHeader empty = {.kind = PacketKind::kContribution,
                              .dtype = 1,
                              .op = 8,
                              .empty = true,
                              .child = 1,
                              .group = kGroup,
                              .elements = 2,
                              .slot = 0};
  node_.receive(kB, packet_of(empty, {}));
  EXPECT_EQ(values_of(sent_.back().second), (std::vector<std::int32_t>{1, 0}));
}

TEST_F(RootTest, ForgetsARemovedGroup) {
  node_.remove(kGroup);
  node_.receive(kA, packet(0, 0, {1}));
  EXPECT_EQ(drops(Drop::kUnknownGroup), 1u);
}

}  // namespace
}  // namespace plugfest::reduction
