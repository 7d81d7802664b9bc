#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>

#include "fabric/roce/faults/fault_decision.h"

namespace plugfest::roce {
namespace {

FaultDecider decider_for(const std::string& text) {
  FaultDecider decider("roce_eth0", Direction::kOut);
  const FaultPlan plan = parse_faults(text);
  decider.set_plans({&plan, 1});
  return decider;
}

// One letter per packet for its faults.
std::string next(FaultDecider& decider, int packets) {
  std::string text;
  for (int i = 0; i < packets; ++i) {
    const FaultDecision decision = decider.next();
    text += decision.loss               ? 'x'
            : decision.corrupt          ? 'c'
            : decision.duplicate        ? '2'
            : decision.overtaken_by > 0 ? static_cast<char>('a' + decision.overtaken_by)
            : decision.none()           ? '.'
                                        : '?';
  }
  return text;
}

TEST(FaultDecider, RepeatsDecisionsForTheSameSeedOnly) {
  const std::string words = "loss=10%,duplicate=10%,reorder=10%,corrupt=10%,seed=";
  FaultDecider first = decider_for(words + "3"), again = decider_for(words + "3"), other = decider_for(words + "4");
  const std::string letters = next(first, 1000);
  EXPECT_EQ(letters, next(again, 1000));
  EXPECT_NE(letters, next(other, 1000));
  EXPECT_EQ(letters.find('?'), std::string::npos);
}

TEST(FaultDecider, UsesDifferentSequencesPerDirection) {
  const FaultPlan plan = parse_faults("direction=both,loss=10%");
  FaultDecider out("roce_eth0", Direction::kOut), in("roce_eth0", Direction::kIn);
  out.set_plans({&plan, 1});
  in.set_plans({&plan, 1});
  EXPECT_NE(next(out, 1000), next(in, 1000));
}

TEST(FaultDecider, MatchesTheGivenProbability) {
  FaultDecider decider = decider_for("loss=10%");
  const std::string letters = next(decider, 10000);
  const auto dropped = std::count(letters.begin(), letters.end(), 'x');
  EXPECT_GT(dropped, 700);
  EXPECT_LT(dropped, 1300);
}

TEST(FaultDecider, KeepsOtherDecisionsWhenOneProbabilityChanges) {
  FaultDecider losing = decider_for("loss=10%,seed=5"), both = decider_for("loss=10%,reorder=20%,seed=5");
  std::string expected = next(losing, 1000), actual = next(both, 1000);
  for (char& letter : actual)
    if (letter != 'x') letter = '.';
  EXPECT_EQ(expected, actual);
}

TEST(FaultDecider, IgnoresPlansForOtherDevicesAndDirections) {
  const std::vector<FaultPlan> plans = {parse_faults("device=roce_eth1,loss=100%"),
                                        parse_faults("direction=in,loss=100%")};
  FaultDecider decider("roce_eth0", Direction::kOut);
  decider.set_plans(plans);
  EXPECT_FALSE(decider.any());
}

TEST(FaultDecider, ContinuesTheSequenceOfAPlanThatStays) {
  const FaultPlan plan = parse_faults("loss=10%,seed=7");
  FaultDecider unchanged = decider_for("loss=10%,seed=7"), changed = decider_for("loss=10%,seed=7");
  const std::string expected = next(unchanged, 1000);
  std::string letters = next(changed, 500);
  changed.set_plans(std::vector<FaultPlan>{parse_faults("delay=1us"), plan});
  EXPECT_EQ(letters + next(changed, 500), expected);
}

TEST(FaultDecider, AddsDelaysAndBoundsJitter) {
  FaultDecider decider("roce_eth0", Direction::kOut);
  decider.set_plans(std::vector<FaultPlan>{parse_faults("delay=5us"), parse_faults("delay=1us,jitter=2us")});
  EXPECT_TRUE(decider.delays_packets());
  EXPECT_FALSE(decider.alters_packets());
  Nanoseconds least = kNever, most = 0;
  for (int i = 0; i < 1000; ++i) {
    const Nanoseconds delay = decider.next_delay();
    least = std::min(least, delay);
    most = std::max(most, delay);
  }
  EXPECT_GE(least, 6000);
  EXPECT_LE(most, 8000);
  EXPECT_GT(most - least, 1000);
}

TEST(Corruption, InvertsOneBitThatTheIcrcCovers) {
  for (std::uint64_t choice = 0; choice < 64 * 8; ++choice) {
    std::vector<std::byte> packet(64);
    corrupt(packet, choice);
    int inverted = 0;
    for (const std::byte byte : packet) inverted += std::popcount(std::to_integer<unsigned>(byte));
    EXPECT_EQ(inverted, 1) << choice;
    EXPECT_EQ(packet[4], std::byte{0}) << choice;
  }
}

struct Packet {
  std::string bytes;
};

TEST(ReorderBuffer, ReleasesPacketsAfterTheGivenNumberOfLaterPackets) {
  ReorderBuffer<Packet> buffer;
  buffer.hold({"three"}, 3);
  buffer.hold({"one"}, 1);
  auto released = buffer.release(1);
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].bytes, "one");
  EXPECT_TRUE(buffer.release(1).empty());
  EXPECT_FALSE(buffer.empty());
  EXPECT_EQ(buffer.release(5).size(), 1u);
  EXPECT_TRUE(buffer.empty());
}

TEST(DelayQueue, KeepsTheOrderOfPackets) {
  DelayQueue<Packet> queue;
  EXPECT_EQ(queue.due(), kNever);
  EXPECT_TRUE(queue.push({"first"}, 200));
  EXPECT_TRUE(queue.push({"second"}, 100));
  EXPECT_EQ(queue.due(), 200);
  EXPECT_EQ(queue.pop_front().bytes, "first");
  EXPECT_EQ(queue.due(), 200);
  EXPECT_EQ(queue.pop_front().bytes, "second");
  EXPECT_TRUE(queue.empty());
}

TEST(DelayQueue, DropsPacketsBeyondItsCapacity) {
  DelayQueue<Packet> queue;
  EXPECT_TRUE(queue.push({std::string(64 << 20, 'x')}, 1));
  EXPECT_FALSE(queue.push({"more"}, 1));
  queue.pop_front();
  EXPECT_TRUE(queue.push({"again"}, 1));
}

}  // namespace
}  // namespace plugfest::roce
