#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "harness/traffic/nccl/control/table.h"
#include "harness/traffic/nccl/log_summary.h"
#include "harness/traffic/nccl/program_job.h"

namespace plugfest::nccl {

namespace {

constexpr const char* kLog =
    "a:5:5 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
    "a:5:5 [0] NCCL INFO NET/Plugin: Loaded net plugin Mesh (v11)\n"
    "a:5:5 [0] NCCL INFO Using network Mesh\n"
    "a:5:5 [0] NCCL INFO Channel 00/0 : 2[0] -> 0[0] [receive] via NET/Mesh/0\n"
    "a:5:5 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Mesh/0\n"
    "a:5:5 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/Mesh/0\n"
    "a:5:5 [0] NCCL INFO Channel 02/0 : 0[0] -> 1[0] [send] via NET/Mesh/1\n"
    "a:5:5 [0] NCCL INFO Channel 00 : 0[0] -> 3[1] via SHM/direct/direct\n"
    "a:5:5 [0] NCCL INFO 4 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per "
    "peer\n"
    "[2026-11-22 09:06:17] a:5:5 [0] graph/topo.cc:1643 NCCL WARN Could not find any local path from gpu 0 to net.\n";

TEST(LogSummary, TellsPluginVersionAndChannels) {
  const LogSummary summary = summarize(kLog);
  EXPECT_EQ(summary.version, "2.28.9+cuda13.0");
  EXPECT_EQ(choices_text(summary), "net plugin Mesh (v11), network Mesh, 4 collective and 2 p2p channels");
  ASSERT_EQ(summary.warnings.size(), 1u);
  EXPECT_EQ(summary.warnings[0], "Could not find any local path from gpu 0 to net.");
}

TEST(LogSummary, CountsTheChannelsOfAConnection) {
  EXPECT_EQ(connections_text(summarize(kLog)),
            "0 -> 1 NET/Mesh/0 x2, 0 -> 1 NET/Mesh/1 x1, 0 -> 3 SHM/direct/direct x1");
}

TEST(LogSummary, OfAnEmptyLogSaysSo) {
  EXPECT_EQ(choices_text(summarize("")), "network unknown, 0 collective and 0 p2p channels");
  EXPECT_EQ(connections_text(summarize("garbage -> via \n : -> via x\nChannel  -> 1 via\n")), "");
}

}  // namespace

namespace {

using testing::ElementsAre;

TEST(LineSplitter, JoinsPartsAndEndsTheLastLine) {
  std::vector<std::string> lines;
  LineSplitter splitter([&](std::string_view line) { lines.emplace_back(line); });
  splitter.add("one\ntw");
  EXPECT_THAT(lines, ElementsAre("one"));
  splitter.add("o\n\nthree");
  splitter.finish();
  splitter.finish();
  EXPECT_THAT(lines, ElementsAre("one", "two", "", "three"));
}

TEST(LineSplitter, CutsALineWithoutEnd) {
  std::vector<std::string> lines;
  LineSplitter splitter([&](std::string_view line) { lines.emplace_back(line); });
  splitter.add(std::string(LineSplitter::kLongest + 1, 'x'));
  splitter.finish();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), LineSplitter::kLongest);
  EXPECT_EQ(lines[1], "x");
}

}  // namespace

namespace {

TEST(Table, AddsUpTheRanks) {
  const Measurement measurement{.operation = Operation::kAllReduce, .bytes = 4000};
  const TableRow row = row_of(measurement, {"1000 3.00 0 5.00 1", "1000 5.00 2 7.00 0"});
  EXPECT_EQ(row.count, 1000u);
  EXPECT_DOUBLE_EQ(row.out_of_place.microseconds, 4);
  EXPECT_EQ(row.out_of_place.wrong, 2u);
  EXPECT_DOUBLE_EQ(row.in_place->microseconds, 6);
  EXPECT_EQ(row.in_place->wrong, 1u);
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(row, row.out_of_place), 1);
  EXPECT_DOUBLE_EQ(bus_bandwidth(row, row.out_of_place), 1);
}

TEST(Table, KeepsTheFirstWrongElement) {
  const Measurement measurement{.operation = Operation::kAllReduce, .bytes = 4000};
  const TableRow row =
      row_of(measurement, {"1000 3.00 0 5.00 0", "1000 5.00 2 7.00 0 in the output, element 17 is 3, not 4",
                           "1000 5.00 1 7.00 0 in the output, element 9 is 1, not 2"});
  EXPECT_EQ(row.first_wrong, "rank 1: in the output, element 17 is 3, not 4");
}

TEST(Table, ScalesTheBusBandwidthLikeNcclTests) {
  const std::vector<std::string> answers(4, "250 1.00 0 1.00 0");
  EXPECT_DOUBLE_EQ(bus_bandwidth(row_of({.operation = Operation::kAllReduce, .bytes = 1000}, answers), {1, 0}), 1.5);
  EXPECT_DOUBLE_EQ(bus_bandwidth(row_of({.operation = Operation::kAllGather, .bytes = 1000}, answers), {1, 0}), 0.75);
  EXPECT_DOUBLE_EQ(bus_bandwidth(row_of({.operation = Operation::kBroadcast, .bytes = 1000}, answers), {1, 0}), 1);
}

TEST(Table, ShowsNoInPlaceTimesWhereThereAreNone) {
  const TableRow row = row_of({.operation = Operation::kSendRecv, .bytes = 8}, {"2 1.00 0", "2 1.00 0"});
  EXPECT_FALSE(row.in_place);
  EXPECT_EQ(
      table_row(row),
      "            8             2     float    none    -1     1.00    0.01    0.01      0      N/A     N/A     N/A    "
      "N/A\n");
}

TEST(Table, RefusesAnAnswerThatIsNoResult) { EXPECT_THROW(row_of({}, {"1000 3.00"}), std::runtime_error); }

}  // namespace

}  // namespace plugfest::nccl
