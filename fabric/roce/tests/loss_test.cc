// Reliable queue pairs deliver each message once and in order despite loss, duplication, reordering and corruption.
#include "fabric/roce/tests/two_nics.h"
#include "fabric/system/wait.h"

namespace plugfest::roce {
namespace {

struct Wire {
  const char* name;
  const char* faults;
};

class Lossy : public testing::TestWithParam<Wire> {
 protected:
  static Attributes attributes() {
    Attributes chosen;
    chosen.faults = parse_faults(GetParam().faults);
    return chosen;
  }
};

INSTANTIATE_TEST_SUITE_P(Links, Lossy,
                         testing::Values(Wire{"Clean", ""}, Wire{"Drops", "loss=5%,seed=1"},
                                         Wire{"Duplicates", "duplicate=10%,seed=2"},
                                         Wire{"Reorders", "reorder=10%,seed=3"}, Wire{"Corrupts", "corrupt=5%,seed=4"},
                                         Wire{"Everything", "loss=2%,duplicate=2%,reorder=2%,corrupt=2%,seed=5"},
                                         Wire{"Late", "direction=both,delay=200us,jitter=100us"},
                                         Wire{"EverythingOnArrival",
                                              "direction=in,loss=2%,duplicate=2%,reorder=2%,corrupt=2%,delay=50us,"
                                              "seed=6"}),
                         [](const auto& info) { return info.param.name; });

constexpr std::uint64_t kRounds = 40;
constexpr std::uint32_t kBytes = 20000;

TEST_P(Lossy, SendsArriveOnceAndInOrder) {
  TwoNics nics(attributes(), 2 * kRounds * kBytes);
  fill(nics.a.buffer, 1);
  const std::size_t target = kRounds * kBytes;
  for (std::uint64_t i = 0; i < kRounds; ++i) ASSERT_EQ(nics.b.post_receive(i, target + i * kBytes, kBytes), 0);
  for (std::uint64_t i = 0; i < kRounds; ++i)
    ASSERT_EQ(nics.a.post_send(IBV_WR_SEND, i, i * kBytes, static_cast<std::uint32_t>(kBytes - i)), 0);
  const auto sent = nics.at_a(kRounds);
  const auto received = nics.at_b(kRounds);
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    ASSERT_EQ(sent[i].status, IBV_WC_SUCCESS);
    ASSERT_EQ(received[i].status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent[i].wr_id, i);
    EXPECT_EQ(received[i].wr_id, i);
    EXPECT_EQ(received[i].byte_len, kBytes - i);
    EXPECT_EQ(std::memcmp(nics.a.buffer.data() + i * kBytes, nics.b.buffer.data() + target + i * kBytes, kBytes - i), 0)
        << "message " << i;
  }
}

TEST_P(Lossy, ReadsReturnTheRightBytes) {
  TwoNics nics(attributes(), kRounds * kBytes);
  fill(nics.b.buffer, 2);
  for (std::uint64_t i = 0; i < kRounds; ++i)
    ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_READ, i, i * kBytes, kBytes, to(nics.b, i * kBytes)), 0);
  const auto completions = nics.at_a(kRounds);
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    ASSERT_EQ(completions[i].status, IBV_WC_SUCCESS);
    EXPECT_EQ(completions[i].wr_id, i);
  }
  EXPECT_EQ(nics.a.buffer, nics.b.buffer);
}

// Atomics among WRITEs and SENDs must be executed once, and each must return its own result.
TEST_P(Lossy, AtomicsAreExecutedOnceAmongOtherRequests) {
  TwoNics nics(attributes());
  constexpr std::size_t kWord = 512 * 1024;
  for (std::uint64_t i = 0; i < 60; ++i) {
    ASSERT_EQ(nics.a.post_send(IBV_WR_ATOMIC_FETCH_AND_ADD, 2 * i, i * 8, 8, on_word(nics.b, kWord, 1)), 0);
    ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_WRITE, 2 * i + 1, 4096, 3000, to(nics.b, 600 * 1024)), 0);
    const auto completions = nics.at_a(2);
    ASSERT_EQ(completions[0].status, IBV_WC_SUCCESS);
    ASSERT_EQ(completions[1].status, IBV_WC_SUCCESS);
    EXPECT_EQ(completions[0].wr_id, 2 * i);
    EXPECT_EQ(reinterpret_cast<std::uint64_t*>(nics.a.buffer.data())[i], i);
  }
  EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(nics.b.buffer.data() + kWord), 60u);
}

TEST(Loss, LostPacketsAreRepeatedAndCounted) {
  TwoNics nics({.faults = parse_faults("loss=5%,seed=9")}, 4 << 20);
  fill(nics.a.buffer, 6);
  for (std::uint64_t i = 0; i < 4; ++i)
    ASSERT_EQ(nics.a.post_send(IBV_WR_RDMA_WRITE, i, i << 20, 1 << 20, to(nics.b, i << 20)), 0);
  for (const ibv_wc& completion : nics.at_a(4)) ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(nics.a.buffer, nics.b.buffer);
  const Counters of_a = nics.a.nic.counters();
  const Counters of_b = nics.b.nic.counters();
  EXPECT_GT(of_a.fault_drops, 0u);
  EXPECT_GT(of_a.retransmitted_packets, 0u);
  EXPECT_GT(of_b.sent_sequence_naks, 0u);
  EXPECT_GT(of_a.received_sequence_naks, 0u);
  EXPECT_EQ(of_b.icrc_errors, 0u);
}

TEST(Loss, CorruptionIsDetectedByTheIcrcAndCounted) {
  TwoNics nics({.faults = parse_faults("corrupt=20%,seed=9")});
  fill(nics.a.buffer, 6);
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 0, 0, 1 << 20, to(nics.b)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(nics.a.buffer, nics.b.buffer);
  // Superfluous repetitions may still be in flight.
  Counters of_b;
  const auto all_arrived = [&] {
    nics.b.completions.poll(0, nullptr);
    of_b = nics.b.nic.counters();
    return of_b.received_packets + of_b.buffer_drops >= nics.a.nic.counters().sent_packets;
  };
  ASSERT_TRUE(wait_until(all_arrived, std::chrono::minutes(1)));
  EXPECT_EQ(of_b.buffer_drops, 0u);
  EXPECT_GT(of_b.icrc_errors, 0u);
  EXPECT_EQ(of_b.icrc_errors, nics.a.nic.counters().fault_corruptions);
}

TEST(Loss, DelayAppliesToBothDirections) {
  TwoNics nics({.faults = parse_faults("delay=2ms")});
  EXPECT_EQ(nics.run_at_a(IBV_WR_RDMA_WRITE, 0, 0, 8, to(nics.b)).status, IBV_WC_SUCCESS);
  EXPECT_GE(nics.a.nic.counters().delayed_packets, 1u) << "the request";
  EXPECT_GE(nics.b.nic.counters().delayed_packets, 1u) << "the acknowledgement";
}

}  // namespace
}  // namespace plugfest::roce
