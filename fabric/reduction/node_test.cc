#include "fabric/reduction/node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "fabric/reduction/operation.h"

namespace plugfest::reduction {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kGroup = 9;
constexpr std::uint32_t kWindow = 4;
constexpr std::uint32_t kElements = 8;
constexpr std::uint32_t kFirstNode = 1000;

Bytes packet_of(PacketHeader header, std::span<const std::byte> payload) {
  Bytes packet(kPacketHeaderBytes + payload.size());
  std::copy(payload.begin(), payload.end(), packet.begin() + kPacketHeaderBytes);
  write_packet(header, payload.size(), packet);
  return packet;
}

// A rank without timers: it sends again whatever has no result when asked.
class Rank {
 public:
  Rank(Address leaf, std::uint16_t child, int number) : leaf_(leaf), child_(child), number_(number) {}

  Address leaf() const { return leaf_; }

  // The value of an element of a fragment. Sums of these floats depend on the order of the additions.
  static float value(int rank, std::uint64_t slot, std::uint32_t element) {
    return 1.0f / static_cast<float>(3 + rank) + 1e6f * static_cast<float>((slot + element) % 5);
  }

  std::vector<Bytes> unanswered(std::uint64_t fragments) const {
    std::vector<Bytes> packets;
    for (std::uint64_t slot = oldest_; slot < std::min<std::uint64_t>(fragments, oldest_ + kWindow); ++slot)
      if (!results_.contains(slot)) packets.push_back(contribution(slot));
    return packets;
  }

  Bytes contribution(std::uint64_t slot) const {
    std::vector<float> values(kElements);
    for (std::uint32_t i = 0; i < kElements; ++i) values[i] = value(number_, slot, i);
    return packet_of({.kind = PacketKind::kContribution,
                      .dtype = static_cast<std::uint8_t>(DataType::kFloat),
                      .op = static_cast<std::uint8_t>(Operator::kSum),
                      .empty = false,
                      .child = child_,
                      .group = kGroup,
                      .elements = kElements,
                      .slot = slot},
                     std::as_bytes(std::span(values)));
  }

  void receive(std::span<const std::byte> bytes) {
    const std::optional<Packet> packet = parse_packet(bytes);
    if (!packet) return;
    EXPECT_EQ(packet->kind, PacketKind::kResult);
    EXPECT_EQ(packet->child, child_);
    const Bytes payload(packet->payload.begin(), packet->payload.end());
    if (packet->slot >= oldest_) {
      const auto [known, is_new] = results_.emplace(packet->slot, payload);
      EXPECT_EQ(known->second, payload) << "slot " << packet->slot << " has two results";
    }
    while (results_.contains(oldest_)) all_.push_back(results_.extract(oldest_++).mapped());
  }

  const std::vector<Bytes>& results() const { return all_; }

 private:
  Address leaf_;
  std::uint16_t child_;
  int number_;
  std::uint64_t oldest_ = 0;
  std::map<std::uint64_t, Bytes> results_;  // behind a gap
  std::vector<Bytes> all_;
};

// A root, leaves, and ranks at the leaves. Packets are lost, repeated, delayed and damaged.
class Tree {
 public:
  Tree(int leaves, int ranks_per_leaf, std::uint32_t seed) : random_(seed) {
    GroupConfig root = {.group = kGroup, .window = kWindow, .max_payload = 256, .parent = {}, .children = {}};
    for (int leaf = 0; leaf < leaves; ++leaf) {
      const Address address = {kFirstNode + 1 + static_cast<std::uint32_t>(leaf), 4793};
      root.children.push_back(address);
      GroupConfig config = {.group = kGroup,
                            .window = kWindow,
                            .max_payload = 256,
                            .parent = GroupConfig::Parent{{kFirstNode, 4793}, static_cast<std::uint16_t>(leaf)},
                            .children = {}};
      for (int child = 0; child < ranks_per_leaf; ++child) {
        const int number = static_cast<int>(ranks_.size());
        config.children.push_back({static_cast<std::uint32_t>(number), 5000});
        ranks_.emplace_back(address, static_cast<std::uint16_t>(child), number);
      }
      add_node(address, config);
    }
    add_node({kFirstNode, 4793}, root);
  }

  // Runs until all ranks have all results.
  void run(std::uint64_t fragments, double faults) {
    for (int round = 0; round < 100'000; ++round) {
      bool all = true;
      for (std::size_t number = 0; number < ranks_.size(); ++number) {
        const std::vector<Bytes> packets = ranks_[number].unanswered(fragments);
        all = all && packets.empty();
        for (const Bytes& packet : packets)
          post({static_cast<std::uint32_t>(number), 5000}, ranks_[number].leaf(), packet, faults);
      }
      if (all) return;
      std::shuffle(in_flight_.begin(), in_flight_.end(), random_);
      // Some packets stay for the next round.
      for (std::size_t count = in_flight_.size() - in_flight_.size() / 4; count > 0 && !in_flight_.empty(); --count)
        deliver_one(faults);
    }
    FAIL() << "the operations do not end";
  }

  const std::vector<Rank>& ranks() const { return ranks_; }
  AggregationNode& node(Address address) { return *nodes_.at(address); }

 private:
  struct Datagram {
    Address from, to;
    Bytes packet;
  };

  void add_node(Address address, const GroupConfig& config) {
    auto node =
        std::make_unique<AggregationNode>([this, address](const Address& to, std::span<const std::byte> packet) {
          post(address, to, Bytes(packet.begin(), packet.end()), faults_);
        });
    node->configure(config);
    nodes_.emplace(address, std::move(node));
  }

  bool happens(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }

  void post(Address from, Address to, Bytes packet, double faults) {
    if (happens(faults)) return;
    if (happens(faults))
      packet[std::uniform_int_distribution<std::size_t>(0, packet.size() - 1)(random_)] ^= std::byte{4};
    if (happens(faults)) in_flight_.push_back({from, to, packet});
    in_flight_.push_back({from, to, std::move(packet)});
  }

  void deliver_one(double faults) {
    faults_ = faults;
    const Datagram datagram = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (datagram.to.ip < kFirstNode)
      ranks_[datagram.to.ip].receive(datagram.packet);
    else
      nodes_.at(datagram.to)->receive(datagram.from, datagram.packet);
  }

  std::mt19937 random_;
  double faults_ = 0;
  std::vector<Rank> ranks_;
  std::map<Address, std::unique_ptr<AggregationNode>> nodes_;
  std::deque<Datagram> in_flight_;
};

// The sum as a tree of nodes computes it: first at each leaf, then at the root.
Bytes expected(int leaves, int ranks_per_leaf, std::uint64_t slot) {
  std::vector<float> sums(kElements);
  for (std::uint32_t i = 0; i < kElements; ++i) {
    for (int leaf = 0; leaf < leaves; ++leaf) {
      float sum = 0;
      for (int child = 0; child < ranks_per_leaf; ++child) {
        const float value = Rank::value(leaf * ranks_per_leaf + child, slot, i);
        sum = child == 0 ? value : sum + value;
      }
      sums[i] = leaf == 0 ? sum : sums[i] + sum;
    }
  }
  const auto bytes = std::as_bytes(std::span(sums));
  return {bytes.begin(), bytes.end()};
}

class Trees : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(Trees, GiveTheSameResultsWhateverTheNetworkDoes) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  constexpr std::uint64_t kFragments = 40;
  Tree tree(3, 4, GetParam());
  tree.run(kFragments, 0.1);
  for (const Rank& rank : tree.ranks()) {
    ASSERT_EQ(rank.results().size(), kFragments);
    for (std::uint64_t slot = 0; slot < kFragments; ++slot) EXPECT_EQ(rank.results()[slot], expected(3, 4, slot));
  }
  const NodeCounters& leaf = tree.node({kFirstNode + 1, 4793}).counters();
  EXPECT_EQ(leaf.contributions, 4 * kFragments);
  EXPECT_EQ(leaf.results, kFragments);
  EXPECT_GT(leaf.repeats, 0u);
  EXPECT_GT(leaf.drops[static_cast<std::size_t>(Drop::kMalformed)], 0u);
  EXPECT_EQ(leaf.drops[static_cast<std::size_t>(Drop::kForeign)], 0u);
  EXPECT_EQ(leaf.drops[static_cast<std::size_t>(Drop::kMismatch)], 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Trees, ::testing::Range(1u, 21u));

// A root with two children, and the packets that it sends.
class RootTest : public ::testing::Test {
 protected:
  static constexpr Address kA = {1, 5000}, kB = {2, 5001};

  RootTest()
      : node_([this](const Address& to, std::span<const std::byte> packet) {
          sent_.emplace_back(to, Bytes(packet.begin(), packet.end()));
        }) {
    node_.configure({.group = kGroup, .window = 1, .max_payload = 32, .parent = {}, .children = {kA, kB}});
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
