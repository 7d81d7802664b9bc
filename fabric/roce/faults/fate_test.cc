// Fates repeat by seed, come about as often as asked, and plans may change while packets go.
#include "fabric/roce/faults/fate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

namespace plugfest::roce {
namespace {

Fates fates_of(const std::string& text) {
  Fates fates("roce_eth0", Direction::kOut);
  const FaultPlan plan = parse_faults(text);
  fates.follow({&plan, 1});
  return fates;
}

// One letter per packet: what happens to it.
std::string next(Fates& fates, int packets) {
  std::string text;
  for (int i = 0; i < packets; ++i) {
    const Fate fate = fates.next();
    text += fate.drop          ? 'x'
            : fate.corrupt     ? 'c'
            : fate.duplicate   ? '2'
            : fate.hold > 0    ? static_cast<char>('a' + fate.hold)
            : fate.untouched() ? '.'
                               : '?';
  }
  return text;
}

TEST(Fates, RepeatWithTheSameSeedAndDifferWithAnother) {
  const std::string words = "drop=10%,duplicate=10%,reorder=10%,corrupt=10%,seed=";
  Fates first = fates_of(words + "3"), again = fates_of(words + "3"), other = fates_of(words + "4");
  const std::string letters = next(first, 1000);
  EXPECT_EQ(letters, next(again, 1000));
  EXPECT_NE(letters, next(other, 1000));
  EXPECT_EQ(letters.find('?'), std::string::npos);
}

TEST(Fates, AreAStreamOfTheirOwnInEachDirection) {
  const FaultPlan plan = parse_faults("direction=both,drop=10%");
  Fates out("roce_eth0", Direction::kOut), in("roce_eth0", Direction::kIn);
  out.follow({&plan, 1});
  in.follow({&plan, 1});
  EXPECT_NE(next(out, 1000), next(in, 1000));
}

TEST(Fates, DropAboutAsManyAsAsked) {
  Fates fates = fates_of("drop=10%");
  const std::string letters = next(fates, 10000);
  const auto dropped = std::count(letters.begin(), letters.end(), 'x');
  EXPECT_GT(dropped, 700);
  EXPECT_LT(dropped, 1300);
}

TEST(Fates, OneProbabilityLeavesTheOthersWhereTheyWere) {
  Fates one = fates_of("drop=10%,seed=5"), both = fates_of("drop=10%,reorder=20%,seed=5");
  std::string of_one = next(one, 1000), of_both = next(both, 1000);
  for (char& letter : of_both)
    if (letter != 'x') letter = '.';
  EXPECT_EQ(of_one, of_both);
}

TEST(Fates, PlansForOthersDoNotConcernThem) {
  const std::vector<FaultPlan> plans = {parse_faults("device=roce_eth1,drop=100%"),
                                        parse_faults("direction=in,drop=100%")};
  Fates fates("roce_eth0", Direction::kOut);
  fates.follow(plans);
  EXPECT_FALSE(fates.any());
}

TEST(Fates, APlanThatStaysGoesOnWhereItWas) {
  const FaultPlan plan = parse_faults("drop=10%,seed=7");
  Fates undisturbed = fates_of("drop=10%,seed=7"), disturbed = fates_of("drop=10%,seed=7");
  const std::string expected = next(undisturbed, 1000);
  std::string letters = next(disturbed, 500);
  disturbed.follow(std::vector<FaultPlan>{parse_faults("delay=1us"), plan});
  EXPECT_EQ(letters + next(disturbed, 500), expected);
}

TEST(Fates, DelaysAddUpAndJitterStaysWithinItsBounds) {
  Fates fates("roce_eth0", Direction::kOut);
  fates.follow(std::vector<FaultPlan>{parse_faults("delay=5us"), parse_faults("delay=1us,jitter=2us")});
  EXPECT_TRUE(fates.delay_packets());
  EXPECT_FALSE(fates.touch_packets());
  Nanoseconds least = kNever, most = 0;
  for (int i = 0; i < 1000; ++i) {
    const Nanoseconds delay = fates.next_delay();
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
