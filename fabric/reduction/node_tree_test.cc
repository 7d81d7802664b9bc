// A tree of aggregation nodes whose packets are lost, repeated, delayed and damaged.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fabric/reduction/node.h"
#include "fabric/reduction/operation.h"

namespace plugfest::reduction {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kGroup = 9;
constexpr std::uint32_t kFragmentWindow = 4;
constexpr std::uint32_t kElements = 8;
constexpr std::uint32_t kFirstNode = 1000;

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
    for (std::uint64_t slot = oldest_; slot < std::min<std::uint64_t>(fragments, oldest_ + kFragmentWindow); ++slot)
      if (!results_.contains(slot)) packets.push_back(contribution(slot));
    return packets;
  }

  Bytes contribution(std::uint64_t slot) const {
    std::array<float, kElements> values;
    for (std::uint32_t i = 0; i < kElements; ++i) values[i] = value(number_, slot, i);
    Bytes packet(kPacketHeaderBytes + sizeof(values));
    std::memcpy(&packet[kPacketHeaderBytes], values.data(), sizeof(values));
    write_packet({.kind = PacketKind::kContribution,
                  .dtype = static_cast<std::uint8_t>(DataType::kFloat),
                  .op = static_cast<std::uint8_t>(Operator::kSum),
                  .empty = false,
                  .child = child_,
                  .group = kGroup,
                  .elements = kElements,
                  .slot = slot},
                 sizeof(values), packet);
    return packet;
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
    GroupConfig root = {
        .group = kGroup, .fragment_window = kFragmentWindow, .max_payload = 256, .parent = {}, .children = {}};
    for (int leaf = 0; leaf < leaves; ++leaf) {
      const Address address = {kFirstNode + 1 + static_cast<std::uint32_t>(leaf), 4793};
      root.children.push_back(address);
      GroupConfig config = {.group = kGroup,
                            .fragment_window = kFragmentWindow,
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

}  // namespace
}  // namespace plugfest::reduction
