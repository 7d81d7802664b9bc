// Summaries of rounds, and output.
#include "harness/bench/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "fabric/topology/graph.h"
#include "harness/bench/measurements.h"
#include "harness/report/text.h"

namespace plugfest::bench {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

const Row kRow = {"write-bw", "ib_write_bw", "Gbit/s", "raw UDP", {Aim::Of::kRatio, Aim::Bound::kAtLeast, 0.85}};

TEST(BenchSummary, UsesTheMedianOfTheRoundsRatios) {
  // The machine was half as fast in the second round. The round's ratio counts nevertheless.
  const RowResult result = summarize(kRow, {{45, 50}, {20, 25}, {48, 60}});
  EXPECT_DOUBLE_EQ(result.figure, 45);
  EXPECT_DOUBLE_EQ(*result.reference, 50);
  EXPECT_DOUBLE_EQ(*result.ratio, 0.8);
  EXPECT_EQ(result.met, false);
}

TEST(BenchSummary, HasNoRatioWithoutAReference) {
  const Row row = {"idle", "idle process", "KiB", "", {Aim::Of::kFigure, Aim::Bound::kAtMost, 64}};
  const RowResult result = summarize(row, {{60}, {70}});
  EXPECT_DOUBLE_EQ(result.figure, 65);
  EXPECT_FALSE(result.ratio);
  EXPECT_EQ(result.met, false);
}

TEST(BenchSummary, HasNoVerdictWithoutAnAim) { EXPECT_FALSE(summarize({"loss", "", "", "", {}}, {{1}}).met); }

TEST(BenchTable, ShowsFigureReferenceRatioAndAim) {
  EXPECT_THAT(
      table_row(summarize(kRow, {{45, 50}})),
      MatchesRegex("write-bw +45\\.0 Gbit/s +50\\.0 +0\\.90  ≥ 0\\.85 × +yes *\n  ib_write_bw; reference: raw UDP\n"));
  EXPECT_THAT(markdown({summarize(kRow, {{40, 50}})}),
              HasSubstr("| ib_write_bw | 40.0 Gbit/s | 50.0 (raw UDP) | 0.80 | ≥ 0.85 × | NO |\n"));
}

TEST(BenchTable, FitsIntoEightyColumns) {
  std::string table = table_heading();
  for (const Row& row : rows()) table += table_row(summarize(row, {{123456, 123456}}));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(report::columns(line), 80u) << line;
}

TEST(BenchJson, ContainsEveryRound) {
  const auto json = nlohmann::json::parse(to_json({summarize(kRow, {{45, 50}, {20, 25}})}, {}, {0.5, 2}));
  EXPECT_EQ(json["rows"][0]["name"], "write-bw");
  EXPECT_EQ(json["rows"][0]["rounds"][1]["reference"], 25);
  EXPECT_EQ(json["environment"]["load"][1], 2);
}

TEST(BenchRows, HaveUniqueNames) {
  std::set<std::string> names;
  for (const Row& row : rows()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(BenchRows, UseValidTopologies) {
  for (const Measurement& measurement : measurements()) EXPECT_NO_THROW(topology::named(measurement.topology));
}

}  // namespace
}  // namespace plugfest::bench
