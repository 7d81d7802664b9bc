#include "harness/traffic/nccl/control/log_summary.h"

#include <gtest/gtest.h>

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
}  // namespace plugfest::nccl
