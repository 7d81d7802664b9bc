#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/nccl/commands.h"
#include "harness/nccl/log_summary.h"
#include "harness/nccl/program_job.h"

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

TEST(LogSummary, TellsConnectionsToSwitchesAndAlgorithms) {
  const LogSummary summary = summarize(
      "a:5:5 [0] NCCL INFO CollNet 00/0 : 1 [receive] via COLLNET/Sharp/0\n"
      "a:5:5 [0] NCCL INFO CollNet 00/1 : 1 [send] via COLLNET/Sharp/0\n"
      "a:5:5 [0] NCCL INFO CollNet 01/1 : 1 [send] via COLLNET/Sharp/0\n"
      "a:5:5 [0] NCCL INFO AllReduce: 8 Bytes -> Algo COLLNET_CHAIN proto SIMPLE channel{Lo..Hi}={0..1}\n"
      "a:5:5 [0] NCCL INFO AllReduce: 4 Bytes -> Algo COLLNET_CHAIN proto SIMPLE channel{Lo..Hi}={0..0}\n"
      "a:5:5 [0] NCCL INFO AllGather: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n");
  EXPECT_EQ(connections_text(summary), "1 -> switches COLLNET/Sharp/0 x2");
  EXPECT_EQ(algorithms_text(summary), "AllReduce COLLNET_CHAIN SIMPLE x2, AllGather RING LL x1");
}

TEST(LogSummary, TellsWhyNcclGoesOnWithoutCollNet) {
  const std::string loaded = "a:5:5 [0] NCCL INFO NET/Plugin: Loaded collnet plugin Sharp (v11)\n";
  const std::string connects = loaded + "a:5:5 [0] NCCL INFO CollNet 00/1 : 1 [send] via COLLNET/Sharp/0\n";
  const std::string gave_up =
      "[time] a:5:5 [0] transport.cc:399 NCCL WARN Cannot initialize CollNet, using point-to-point network instead\n";
  EXPECT_EQ(coll_net_fallback({loaded, connects}), "") << "heads connect";
  EXPECT_EQ(coll_net_fallback({loaded, "[time] a:5:5 [0] x.cc:1 NCCL WARN no manager (-8)\n" + gave_up}),
            "NCCL continues without CollNet: rank 1: no manager (-8)");
  EXPECT_EQ(coll_net_fallback({connects, gave_up}), "NCCL continues without CollNet: rank 1: no warning says why");
  EXPECT_EQ(
      coll_net_fallback({loaded + "a:5:5 [0] NCCL INFO Communicator has 3 nodes which is less than CollNet node "
                                  "threshold 9, disabling CollNet\n"}),
      "NCCL continues without CollNet: rank 0: Communicator has 3 nodes which is less than CollNet node threshold 9");
  EXPECT_EQ(coll_net_fallback({loaded}), "NCCL continues without CollNet: no rank connects to switches");
  EXPECT_EQ(coll_net_fallback({""}), "NCCL continues without CollNet: it loaded no CollNet of the plugin");
  EXPECT_EQ(choices_text(summarize(loaded)),
            "CollNet plugin Sharp (v11), network unknown, 0 collective and 0 p2p channels");
}

TEST(LogSummary, TellsWhyNcclContinuesWithoutTheProfiler) {
  const std::string start = "a:5:5 [0] NCCL INFO ", loaded = start + "PROFILER/Plugin: Loaded Foo (v5)\n";
  EXPECT_EQ(summarize(loaded).profiler, "Foo (v5)");
  EXPECT_EQ(profiler_fallback({loaded, loaded + start + "PROFILER/Plugin: Closing profiler plugin Foo\n"}), "");
  EXPECT_EQ(profiler_fallback({loaded + start + "PROFILER/Plugin: init commName: a commHash: 5 nranks: 3 rank: 0\n"}),
            "")
      << "the plugin's own line";
  EXPECT_EQ(profiler_fallback({start + "PROFILER/Plugin: Could not find: libnccl-profiler-foo.so\n"}),
            "NCCL continues without the profiler: rank 0: Could not find: libnccl-profiler-foo.so");
  EXPECT_EQ(profiler_fallback({loaded, start + "PROFILER/Plugin: /foo.so: /foo.so: undefined symbol: bar\n"}),
            "NCCL continues without the profiler: rank 1: /foo.so: /foo.so: undefined symbol: bar");
  EXPECT_EQ(profiler_fallback({start + "External profiler plugin /foo.so is unsupported\n"}),
            "NCCL continues without the profiler: rank 0: it exports no version that NCCL loads");
  EXPECT_EQ(profiler_fallback(
                {loaded + start + "Profiler init failed with error '2': Success. Continue without profiler.\n"}),
            "NCCL continues without the profiler: rank 0: its init fails");
}

TEST(LogSummary, TellsWhyNcclDoesNotUseThePlugin) {
  const std::string before = "a:5:5 [0] NCCL INFO NET/Plugin: ";
  const std::string loaded = before + "Loaded net plugin Foo (v11)\n",
                    takes_foo = "a:5:5 [0] NCCL INFO Using network Foo\n";
  const std::string takes_ib = "a:5:5 [0] NCCL INFO Using network IB\n";
  EXPECT_EQ(net_fallback({loaded + takes_foo, loaded + takes_foo}), "");
  EXPECT_EQ(net_fallback({"", loaded}), "") << "no communicator";
  EXPECT_EQ(net_fallback({loaded + "a:5:5 [0] NCCL INFO Using network IBext_v11\n"}), "") << "renamed in init";
  EXPECT_EQ(net_fallback({loaded + takes_foo, loaded + "a:5:5 [0] x.cc:1 NCCL WARN no device\n" + takes_ib}),
            "NCCL uses the network IB instead of the plugin: rank 1: no device");
  EXPECT_EQ(net_fallback({loaded + takes_ib}),
            "NCCL uses the network IB instead of the plugin: rank 0: init fails, or there is no device");
  EXPECT_EQ(net_fallback({before + "/l/libfoo.so: /l/libfoo.so: undefined symbol: bar\n" + takes_ib}),
            "NCCL uses the network IB instead of the plugin: rank 0: /l/libfoo.so: undefined symbol: bar");
  EXPECT_EQ(
      net_fallback({before + "/l/libfoo.so: libbar.so.1: cannot open shared object file\n" + takes_ib}),
      "NCCL uses the network IB instead of the plugin: rank 0: /l/libfoo.so: libbar.so.1: cannot open shared object "
      "file");
  EXPECT_EQ(net_fallback({takes_ib}),
            "NCCL uses the network IB instead of the plugin: rank 0: the library has no interface that NCCL loads");
}

TEST(LogSummary, HasNoChannelsIfTheLogHasNone) {
  EXPECT_EQ(choices_text(summarize("")), "network unknown, 0 collective and 0 p2p channels");
  EXPECT_EQ(connections_text(summarize("garbage -> via \n : -> via x\nChannel  -> 1 via\n CollNet : x via")), "");
  EXPECT_EQ(algorithms_text(summarize("8 Bytes -> Algo \n NCCL INFO A: 8 Bytes -> Algo Ring\n")), "");
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

TEST(Outcomes, AreCombinedOverAllRanks) {
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
