// FaultDecider and corrupt().
#include "fabric/roce/faults/fault_decision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

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
  FaultDecider one = decider_for("loss=10%,seed=5"), both = decider_for("loss=10%,reorder=20%,seed=5");
  std::string expected = next(one, 1000), actual = next(both, 1000);
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
  FaultDecider undisturbed = decider_for("loss=10%,seed=7"), disturbed = decider_for("loss=10%,seed=7");
  const std::string expected = next(undisturbed, 1000);
  std::string letters = next(disturbed, 500);
  disturbed.set_plans(std::vector<FaultPlan>{parse_faults("delay=1us"), plan});
  EXPECT_EQ(letters + next(disturbed, 500), expected);
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
    for (std::size_t i = 0; i < packet.size(); ++i) {
      inverted += std::popcount(std::to_integer<unsigned>(packet[i]));
      if (i == 4) {
        EXPECT_EQ(packet[i], std::byte{0}) << choice;
      }
    }
    EXPECT_EQ(inverted, 1) << choice;
  }
}

}  // namespace
}  // namespace plugfest::roce
