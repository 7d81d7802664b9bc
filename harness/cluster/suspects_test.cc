#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "harness/cluster/certification.h"

namespace plugfest::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kGbit = 1e9;

// Four hosts h1 to h4 with a NIC each, of one rail. All pairs have the same bandwidth and latency.
class Suspects : public ::testing::Test {
 protected:
  Suspects() {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::string host = fmt::format("h{}", i + 1);
      certification_.hosts.push_back({.name = host, .joined = true});
      certification_.nics.push_back({.host = host, .name = host + ".mlx5_0"});
    }
    for (std::size_t one = 0; one < 4; ++one) {
      for (std::size_t other = one + 1; other < 4; ++other) {
        PairRecord pair = {.one = one, .other = other, .reached = true};
        pair.outcome.forth_bits_per_second = pair.outcome.back_bits_per_second = 10 * kGbit;
        pair.outcome.latency_p50_seconds = 10e-6;
        certification_.pairs.push_back(pair);
      }
    }
  }

  PairRecord& pair(std::size_t one, std::size_t other) {
    for (PairRecord& pair : certification_.pairs)
      if (pair.one == one && pair.other == other) return pair;
    throw std::logic_error("no such pair");
  }

  // "broken h2.mlx5_0", in order.
  std::vector<std::string> find() {
    find_suspects(certification_, [this](const std::string& host) { return host == lost_ ? "h3 was lost" : ""; });
    std::vector<std::string> found;
    for (const Suspect& suspect : certification_.suspects)
      found.push_back(fmt::format("{} {}", suspect.kind, suspect.subject));
    return found;
  }

  Certification certification_;
  std::string lost_;
};

TEST_F(Suspects, DoNotExistOnAClusterOfEqualPairs) {
  EXPECT_THAT(find(), IsEmpty());
  EXPECT_EQ(certification_.exit_code(), 0);
}

TEST_F(Suspects, NameTheNicWhoseLinkIsSlowInOneDirection) {
  for (std::size_t one = 0; one < 3; ++one) pair(one, 3).outcome.back_bits_per_second = kGbit;
  EXPECT_THAT(find(), ElementsAre("slow h4.mlx5_0"));
  EXPECT_EQ(certification_.suspects[0].why, "bandwidth: median of its pairs 1 Gbit/s, of the rest of rail 0 10 Gbit/s");
  EXPECT_THAT(pair(0, 3).slow, HasSubstr("h4.mlx5_0: bandwidth"));
  EXPECT_EQ(certification_.exit_code(), 1);
}

TEST_F(Suspects, NameASinglePairThatIsSlow) {
  pair(0, 1).outcome.latency_p50_seconds = 100e-6;
  EXPECT_THAT(find(), ElementsAre("slow h1.mlx5_0 h2.mlx5_0"));
  EXPECT_EQ(certification_.suspects[0].why, "latency: 100 µs, median of rail 0 10 µs");
}

TEST_F(Suspects, DoNotIncludeAPairWithTwiceTheMedianLatency) {
  pair(0, 1).outcome.latency_p50_seconds = 20e-6;
  EXPECT_THAT(find(), IsEmpty());
}

TEST_F(Suspects, NameTheNicWithMoreThanHalfOfItsPairsBroken) {
  pair(0, 1).outcome.broken = "connect returned ncclSystemError (2)";
  pair(1, 2).outcome.broken = "wrong bytes";
  EXPECT_THAT(find(), ElementsAre("broken h2.mlx5_0"));
  EXPECT_EQ(certification_.suspects[0].why,
            "2 of its 3 pairs are broken; the first: connect returned ncclSystemError (2)");
}

TEST_F(Suspects, NameASingleBrokenPair) {
  pair(0, 1).outcome.broken = "wrong bytes";
  EXPECT_THAT(find(), ElementsAre("broken h1.mlx5_0 h2.mlx5_0"));
}

TEST_F(Suspects, NameALostHostAndNotItsPairs) {
  lost_ = "h3";
  for (const auto& [one, other] : {std::pair(0u, 2u), {1u, 2u}, {2u, 3u}}) {
    pair(one, other).outcome.broken = "h3 was lost";
    pair(one, other).reached = false;
  }
  EXPECT_THAT(find(), ElementsAre("host h3"));
  EXPECT_EQ(certification_.exit_code(), 2);
  EXPECT_THAT(record_of(certification_).reasons, ElementsAre("1 host lost or absent: h3", "3 of 6 pairs not measured"));
}

TEST_F(Suspects, DoNotIncludePairsThatTheUserInterrupted) {
  certification_.interrupted = true;
  for (PairRecord& pair : certification_.pairs) {
    pair.outcome = {.broken = "interrupted"};
    pair.interrupted = true;
    pair.reached = false;
  }
  SoakedPair& soak = certification_.soaks.emplace_back();
  soak.message = "interrupted";
  soak.interrupted = true;
  EXPECT_THAT(find(), IsEmpty());
  EXPECT_EQ(certification_.exit_code(), 2);
}

TEST(PairReport, IsInvalidWithAFigureThatNoMeasurementGives) {
  EXPECT_TRUE(has_valid_figures({}));
  for (const double figure :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(has_valid_figures({.outcome = {.back_bits_per_second = figure}}));
    PairReport soaked;
    soaked.soak.growth.emplace_back().standard_error = figure;
    EXPECT_FALSE(has_valid_figures(soaked));
  }
  PairReport shrinking;
  shrinking.soak.growth.emplace_back().mean = -8;
  EXPECT_TRUE(has_valid_figures(shrinking));
}

TEST_F(Suspects, IncludePairsThatLeak) {
  SoakedPair& soak = certification_.soaks.emplace_back();
  soak.one = "h1.mlx5_0";
  soak.other = "h2.mlx5_0";
  soak.leaks = {"h1.mlx5_0: 64 bytes for each message"};
  EXPECT_THAT(find(), ElementsAre("leaks h1.mlx5_0 h2.mlx5_0"));
  EXPECT_THAT(record_of(certification_).reasons, ElementsAre("1 pair leaking: h1.mlx5_0 h2.mlx5_0"));
}

}  // namespace
}  // namespace plugfest::cluster
