#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/traffic/nccl/commands.h"
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
  splitter.add(std::string(LineSplitter::kMaxLine + 1, 'x'));
  splitter.finish();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), LineSplitter::kMaxLine);
  EXPECT_EQ(lines[1], "x");
}

TEST(Commands, CombinesTheOutcomesOfRanks) {
  const Outcome all = combined({{1000, {3, 0}, Timing{5, 1}},
                                {1000, {5, 2}, Timing{7, 0}, "in the output, element 17 is 3, not 4"},
                                {1000, {4, 1}, Timing{6, 0}, "in the output, element 9 is 1, not 2"}});
  EXPECT_EQ(all.count, 1000u);
  EXPECT_DOUBLE_EQ(all.out_of_place.seconds, 4);
  EXPECT_EQ(all.out_of_place.wrong, 3u);
  EXPECT_DOUBLE_EQ(all.in_place->seconds, 6);
  EXPECT_EQ(all.wrong(), 4u);
  EXPECT_EQ(all.first_wrong, "rank 1: in the output, element 17 is 3, not 4");
  EXPECT_FALSE(combined({{2, {1, 0}}}).in_place);
}

TEST(Commands, HaveNames) {
  EXPECT_EQ(name_of(Load{}), "load");
  EXPECT_EQ(name_of(nccl::Run{}), "run");
  EXPECT_EQ(name_of(Abort{}), "abort");
}

}  // namespace

}  // namespace plugfest::nccl
