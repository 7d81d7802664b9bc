// Engines of several ranks, one aggregation node, and a network that loses, repeats and reorders packets by a seed.
#include "fabric/sharp_coll/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "fabric/reduction/node.h"
#include "fabric/sharp_coll/testing/elements.h"

namespace plugfest::sharp_coll {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kGroup = 77;
constexpr std::uint32_t kMaxPayload = 64;
constexpr Nanoseconds kMillisecond = 1'000'000;

const testing::ElementType& kType = testing::kElementTypes[0];  // u32
const testing::ElementType& kBytes = testing::kElementTypes[10];

// Checks that a rank sends only fragments that its fragment window permits.
class WindowCheck {
 public:
  explicit WindowCheck(std::uint32_t fragment_window) : fragment_window_(fragment_window) {}

  void on_result(std::uint64_t slot) {
    if (slot >= oldest_) results_.insert(slot);
    while (results_.contains(oldest_)) results_.erase(oldest_++);
  }
  void on_contribution(std::uint64_t slot) const { EXPECT_LT(slot, oldest_ + fragment_window_); }

 private:
  std::uint32_t fragment_window_;
  std::uint64_t oldest_ = 0;
  std::set<std::uint64_t> results_;
};

struct Faults {
  double loss = 0;
  double duplication = 0;
  double reordering = 0;  // packets with a long delay
};

class Cluster {
 public:
  Cluster(int ranks, std::uint32_t fragment_window, Faults faults, std::uint64_t seed)
      : faults_(faults), random_(seed), node_([this](const reduction::Address& to, std::span<const std::byte> packet) {
          const Bytes result(packet.begin(), packet.end());
          deliver([this, rank = static_cast<int>(to.ip), result] { receive(rank, result); });
        }) {
    reduction::GroupConfig config = {
        .group = kGroup, .fragment_window = fragment_window, .max_payload = kMaxPayload, .parent = {}, .children = {}};
    for (int rank = 0; rank < ranks; ++rank) config.children.push_back(address_of(rank));
    node_.configure(std::move(config));
    windows_.assign(static_cast<std::size_t>(ranks), WindowCheck(fragment_window));
    for (int rank = 0; rank < ranks; ++rank)
      engines_.emplace_back(Engine::Settings{.group = kGroup,
                                             .child = static_cast<std::uint16_t>(rank),
                                             .fragment_window = fragment_window,
                                             .max_payload = kMaxPayload});
  }

  Engine& engine(int rank) { return engines_[static_cast<std::size_t>(rank)]; }
  Nanoseconds now() const { return now_; }
  void advance(Nanoseconds time) { now_ += time; }

  // Runs until nothing is outstanding, or for a long time.
  void run() {
    for (int step = 0; step < 1'000'000; ++step) {
      send_all();
      Nanoseconds next = kNever;
      for (const Engine& engine : engines_) next = std::min(next, engine.next_deadline());
      if (!events_.empty() && events_.begin()->first < next) {
        now_ = std::max(now_, events_.begin()->first);
        const std::function<void()> event = std::move(events_.begin()->second);
        events_.erase(events_.begin());
        event();
      } else if (next != kNever) {
        now_ = std::max(now_, next);
      } else {
        return;
      }
    }
    ADD_FAILURE() << "operations do not end";
  }

 private:
  bool happens(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }

  void deliver(const std::function<void()>& arrive) {
    if (happens(faults_.loss)) return;
    const int copies = happens(faults_.duplication) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const Nanoseconds delay = happens(faults_.reordering) ? 3 * kMillisecond : kMillisecond / 10;
      events_.emplace(now_ + delay, arrive);
    }
  }

  void send_all() {
    for (int rank = 0; rank < static_cast<int>(engines_.size()); ++rank) {
      Bytes packet(engine(rank).packet_capacity());
      while (const std::size_t size = engine(rank).next_packet(now_, packet)) {
        const Bytes sent(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(size));
        WindowCheck& check = windows_[static_cast<std::size_t>(rank)];
        check.on_contribution(reduction::parse_packet(sent)->slot);
        deliver([this, sent] { node_.receive(address_of(reduction::parse_packet(sent)->child), sent); });
      }
    }
  }

  // The rank is the address.
  static reduction::Address address_of(int rank) { return {static_cast<std::uint32_t>(rank), 1}; }

  void receive(int rank, const Bytes& packet) {
    windows_[static_cast<std::size_t>(rank)].on_result(reduction::parse_packet(packet)->slot);
    engine(rank).on_packet(packet, now_);
  }

  Faults faults_;
  std::mt19937_64 random_;
  reduction::AggregationNode node_;
  std::vector<WindowCheck> windows_;
  std::vector<Engine> engines_;
  std::multimap<Nanoseconds, std::function<void()>> events_;
  Nanoseconds now_ = kMillisecond;
};

Transfer sum_of(const Bytes& send, Bytes& receive) {
  Transfer transfer;
  transfer.dtype = kType.dtype;
  transfer.op = SHARP_OP_SUM;
  transfer.element_bytes = kType.bytes;
  transfer.bytes = send.size();
  transfer.source = {send.data(), 0, send.size()};
  transfer.destination = {receive.data(), 0, receive.size()};
  return transfer;
}

// Sums of several sizes, posted at once, in place. Returns the counters of all ranks.
std::vector<Counters> run_sums(int ranks, std::uint32_t fragment_window, Faults faults, std::uint64_t seed) {
  Cluster cluster(ranks, fragment_window, faults, seed);
  const std::vector<std::size_t> counts = {1, 1000, 0, 7, 16, 333};
  std::vector<std::vector<Bytes>> data(static_cast<std::size_t>(ranks));
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < ranks; ++rank)
    for (const std::size_t count : counts)
      data[static_cast<std::size_t>(rank)].push_back(testing::elements(rank, count, kType, SHARP_OP_SUM));
  for (int rank = 0; rank < ranks; ++rank)
    for (Bytes& memory : data[static_cast<std::size_t>(rank)])
      operations.push_back(cluster.engine(rank).post(sum_of(memory, memory), cluster.now()));
  cluster.run();
  for (const auto& operation : operations) EXPECT_EQ(operation->status, SHARP_COLL_SUCCESS);
  std::vector<Counters> counters;
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < counts.size(); ++i)
      EXPECT_EQ(data[static_cast<std::size_t>(rank)][i], testing::reduced(ranks, counts[i], kType, SHARP_OP_SUM));
    EXPECT_EQ(cluster.engine(rank).waiting_since(), kNever);
    EXPECT_EQ(cluster.engine(rank).next_deadline(), kNever);
    counters.push_back(cluster.engine(rank).counters());
  }
  return counters;
}

TEST(SharpEngine, SumsAreRightAndNothingIsSentTwiceWithoutFaults) {
  for (const std::uint32_t fragment_window : {1u, 2u, 16u, 1000u})
    for (const Counters& counters : run_sums(3, fragment_window, {}, 1)) {
      EXPECT_EQ(counters.operations, 6u);
      EXPECT_EQ(counters.fragments, 1u + 63 + 0 + 1 + 1 + 21);
      EXPECT_EQ(counters.contributions, counters.fragments);
      EXPECT_EQ(counters.results, counters.fragments);
      EXPECT_EQ(counters.repeats, 0u);
      EXPECT_EQ(counters.invalid_packets, 0u);
    }
}

TEST(SharpEngine, SumsAreRightWithLossDuplicationAndReordering) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    std::uint64_t repeats = 0;
    for (const Counters& counters :
         run_sums(4, seed % 3 == 0 ? 1 : 16, {.loss = 0.05, .duplication = 0.1, .reordering = 0.1}, seed)) {
      EXPECT_EQ(counters.results, counters.fragments);
      repeats += counters.repeats;
    }
    EXPECT_GT(repeats, 0u) << "seed " << seed;
  }
}

TEST(SharpEngine, ARunWithFaultsDependsOnlyOnTheSeed) {
  const auto repeats = [](std::uint64_t seed) {
    std::vector<std::uint64_t> result;
    for (const Counters& counters : run_sums(3, 8, {.loss = 0.2}, seed)) result.push_back(counters.repeats);
    return result;
  };
  EXPECT_EQ(repeats(5), repeats(5));
}

TEST(SharpEngine, RanksWithoutDataContributeNothing) {
  // An allgather of two blocks of 100 bytes.
  Cluster cluster(2, 4, {}, 1);
  const Bytes blocks[] = {Bytes(100, std::byte{3}), Bytes(100, std::byte{5})};
  Bytes results[2] = {Bytes(200), Bytes(200)};
  for (std::size_t rank = 0; rank < 2; ++rank) {
    Transfer transfer;
    transfer.bytes = 200;
    transfer.source = {blocks[rank].data(), 100 * rank, 100 * rank + 100};
    transfer.destination = {results[rank].data(), 0, 200};
    cluster.engine(static_cast<int>(rank)).post(transfer, cluster.now());
  }
  cluster.run();
  Bytes expected = blocks[0];
  expected.insert(expected.end(), blocks[1].begin(), blocks[1].end());
  EXPECT_EQ(results[0], expected);
  EXPECT_EQ(results[1], expected);
}

TEST(SharpEngine, OnlyTheDestinationIsWritten) {
  Cluster cluster(2, 4, {}, 1);
  const Bytes send = testing::elements(0, 100, kType, SHARP_OP_SUM);
  const Bytes other = testing::elements(1, 100, kType, SHARP_OP_SUM);
  Bytes receive(400, std::byte{0xee});
  Transfer transfer = sum_of(send, receive);
  transfer.destination = {receive.data() + 4, 100, 200};
  cluster.engine(0).post(transfer, cluster.now());
  transfer.source.data = other.data();
  transfer.destination = {};
  cluster.engine(1).post(transfer, cluster.now());
  cluster.run();
  Bytes expected(400, std::byte{0xee});
  const Bytes sum = testing::reduced(2, 100, kType, SHARP_OP_SUM);
  std::copy(sum.begin() + 100, sum.begin() + 200, expected.begin() + 4);
  EXPECT_EQ(receive, expected);
}

TEST(SharpEngine, ResultsMayOverwriteTheSourceAtAnotherPlace) {
  Cluster cluster(2, 2, {.loss = 0.2}, 3);
  const Bytes sum = testing::reduced(2, 500, kType, SHARP_OP_SUM);
  Bytes memory[2];
  for (int rank = 0; rank < 2; ++rank) {
    Bytes& own = memory[rank] = testing::elements(rank, 500, kType, SHARP_OP_SUM);
    Transfer transfer = sum_of(own, own);
    // The last quarter of the result goes to the beginning.
    transfer.destination = {own.data(), 1500, 2000};
    cluster.engine(rank).post(transfer, cluster.now());
  }
  cluster.run();
  for (const Bytes& own : memory) EXPECT_TRUE(std::equal(own.begin(), own.begin() + 500, sum.begin() + 1500));
}

TEST(SharpEngine, RepeatsBecomeRarerWhileAnotherRankIsLate) {
  Engine engine({.group = kGroup, .child = 0, .fragment_window = 4, .max_payload = kMaxPayload});
  const Bytes send(4);
  Bytes receive(4);
  engine.post(sum_of(send, receive), 0);
  Bytes packet(engine.packet_capacity());
  Nanoseconds now = 0;
  std::vector<Nanoseconds> pauses;
  EXPECT_NE(engine.next_packet(now, packet), 0u);
  for (int i = 0; i < 8; ++i) {
    const Nanoseconds next = engine.next_deadline();
    EXPECT_EQ(engine.next_packet(next - 1, packet), 0u);
    EXPECT_NE(engine.next_packet(next, packet), 0u);
    EXPECT_EQ(engine.next_packet(next, packet), 0u);
    pauses.push_back((next - now) / kMillisecond);
    now = next;
  }
  EXPECT_THAT(pauses, ::testing::ElementsAre(50, 100, 200, 400, 800, 1000, 1000, 1000));
  EXPECT_EQ(engine.waiting_since(), 0);
}

TEST(SharpEngine, NothingIsSentAgainWhileResultsArrive) {
  constexpr std::size_t kFragments = 8;
  Engine engine({.group = kGroup, .child = 0, .fragment_window = kFragments, .max_payload = kMaxPayload});
  const Bytes send(kFragments * kMaxPayload);
  Bytes receive(send.size());
  const auto operation = engine.post(sum_of(send, receive), 0);
  std::vector<Bytes> sent(kFragments, Bytes(engine.packet_capacity()));
  for (Bytes& packet : sent) packet.resize(engine.next_packet(0, packet));
  // One result each 30 ms, although the timeout of all fragments ends after 50 ms.
  Bytes packet(engine.packet_capacity());
  for (std::size_t i = 0; i < kFragments; ++i) {
    const Nanoseconds now = static_cast<Nanoseconds>(i + 1) * 30 * kMillisecond;
    EXPECT_EQ(engine.next_packet(now, packet), 0u) << "fragment " << i;
    reduction::PacketHeader header = *reduction::parse_packet(sent[i]);
    header.kind = reduction::PacketKind::kResult;
    reduction::write_packet(header, kMaxPayload, sent[i]);
    engine.on_packet(sent[i], now);
    // Without the other results, the next repeat is one timeout after this one.
    if (i + 1 < kFragments) EXPECT_GT(engine.next_deadline(), now + 30 * kMillisecond);
  }
  EXPECT_EQ(operation->status, SHARP_COLL_SUCCESS);
  EXPECT_EQ(engine.counters().repeats, 0u);
}

TEST(SharpEngine, RepeatsOfASlowLinkCauseNoMoreRepeats) {
  constexpr std::size_t kFragments = 4;
  Engine engine({.group = kGroup, .child = 0, .fragment_window = 2, .max_payload = kMaxPayload});
  const Bytes send(kFragments * kMaxPayload);
  Bytes receive(send.size());
  const auto operation = engine.post(sum_of(send, receive), 0);
  const auto sent_at = [&](Nanoseconds now) {
    std::vector<Bytes> sent;
    for (Bytes packet(engine.packet_capacity()); const std::size_t size = engine.next_packet(now, packet);)
      sent.emplace_back(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(size));
    return sent;
  };
  const auto answer = [&](const std::vector<Bytes>& sent, Nanoseconds now) {
    for (Bytes result : sent) {
      reduction::PacketHeader header = *reduction::parse_packet(result);
      header.kind = reduction::PacketKind::kResult;
      reduction::write_packet(header, kMaxPayload, result);
      engine.on_packet(result, now);
    }
  };
  const std::vector<Bytes> first = sent_at(0);
  const std::vector<Bytes> repeats = sent_at(50 * kMillisecond);
  EXPECT_EQ(repeats, first) << "the first timeout";
  answer(first, 60 * kMillisecond);
  const std::vector<Bytes> rest = sent_at(60 * kMillisecond);
  EXPECT_EQ(rest.size(), 2u);
  // The estimate is 60 ms with a variation of 30 ms; the results of the repeats arrive before the results of the rest.
  answer(repeats, 230 * kMillisecond);
  EXPECT_EQ(engine.next_deadline(), (230 + 180) * kMillisecond);
  EXPECT_TRUE(sent_at(300 * kMillisecond).empty());
  answer(rest, 300 * kMillisecond);
  EXPECT_EQ(operation->status, SHARP_COLL_SUCCESS);
  EXPECT_EQ(engine.counters().repeats, 2u);
  EXPECT_EQ(engine.counters().repeated_results, 2u);
}

TEST(SharpEngine, InvalidPacketsChangeNothing) {
  Engine engine({.group = kGroup, .child = 0, .fragment_window = 4, .max_payload = kMaxPayload});
  const Bytes send(8);
  Bytes receive(8);
  const auto operation = engine.post(sum_of(send, receive), 0);
  Bytes sent(engine.packet_capacity());
  sent.resize(engine.next_packet(0, sent));
  const auto receives = [&](const std::function<void(reduction::PacketHeader&)>& change, std::size_t payload = 8) {
    reduction::PacketHeader header = *reduction::parse_packet(sent);
    header.kind = reduction::PacketKind::kResult;
    change(header);
    Bytes packet(reduction::kPacketHeaderBytes + payload, std::byte{1});
    reduction::write_packet(header, payload, packet);
    engine.on_packet(packet, 1);
  };
  receives([](reduction::PacketHeader& header) { header.kind = reduction::PacketKind::kContribution; });
  receives([](reduction::PacketHeader& header) { header.group += 1; });
  receives([](reduction::PacketHeader& header) { header.slot = 1; });
  receives([](reduction::PacketHeader& header) { header.slot = ~std::uint64_t{0}; });
  receives([](reduction::PacketHeader& header) { header.dtype = kBytes.dtype; });
  receives([](reduction::PacketHeader& header) { header.op = SHARP_OP_MAX; });
  receives([](reduction::PacketHeader& header) { header.elements = 1; });
  receives([](reduction::PacketHeader&) {}, 4);
  receives([](reduction::PacketHeader&) {}, 12);
  for (std::size_t size = 0; size < sent.size(); ++size) engine.on_packet(std::span(sent).first(size), 1);
  EXPECT_EQ(engine.counters().invalid_packets, 9 + sent.size());
  EXPECT_FALSE(operation->finished());
  EXPECT_EQ(receive, Bytes(8));
  receives([](reduction::PacketHeader&) {});
  EXPECT_EQ(operation->status, SHARP_COLL_SUCCESS);
  receives([](reduction::PacketHeader&) {});
  EXPECT_EQ(engine.counters().repeated_results, 1u);
}

TEST(SharpEngine, AllOperationsFailAndNothingIsSentAfterAFailure) {
  Engine engine({.group = kGroup, .child = 0, .fragment_window = 2, .max_payload = kMaxPayload});
  const Bytes send(1000);
  Bytes receive(1000);
  const auto first = engine.post(sum_of(send, receive), 0);
  const auto second = engine.post(sum_of(send, receive), 0);
  Bytes packet(engine.packet_capacity());
  EXPECT_NE(engine.next_packet(0, packet), 0u);
  engine.fail(SHARP_COLL_ERROR);
  EXPECT_EQ(first->status, SHARP_COLL_ERROR);
  EXPECT_EQ(second->status, SHARP_COLL_ERROR);
  EXPECT_EQ(engine.post(sum_of(send, receive), 0)->status, SHARP_COLL_ERROR);
  EXPECT_EQ(engine.next_packet(1'000'000'000'000, packet), 0u);
  EXPECT_EQ(engine.next_deadline(), kNever);
  EXPECT_EQ(engine.waiting_since(), kNever);
}

}  // namespace
}  // namespace plugfest::sharp_coll
