// plugfest bench: nic, net, rma, reduction and fabric.

#include "fabric/netns/host_process.h"
#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;
using testing::AllOf;

TEST(BenchNic, MeasuresTheRequestedRows) {
  if (!netns::find_program("ib_send_lat")) GTEST_SKIP() << "needs ib_send_lat, which is not installed";
  const ScratchFolder folder;
  const std::string result = output_of(
      plugfest("bench nic --only send-lat --only idle-memory --rounds 1 --json " + (folder / "r.json").string()));
  EXPECT_THAT(result, HasSubstr("send-lat"));
  const auto json = nlohmann::json::parse(content_of(folder / "r.json"));
  ASSERT_EQ(json["rows"].size(), 2u) << result;
  EXPECT_EQ(json["rows"][0]["name"], "send-lat");
  EXPECT_GT(json["rows"][0]["figure"], 0);
  EXPECT_GT(json["rows"][0]["reference"], 0);
  EXPECT_GT(json["rows"][0]["ratio"], 0);
  EXPECT_GT(json["rows"][1]["figure"], 0);
}

TEST(BenchNic, NamesItsRows) {
  EXPECT_THAT(error_of("bench nic --only warp-speed"),
              HasSubstr("no row \"warp-speed\": expected one of write-bw-4096, "));
}

TEST(BenchNic, NamesPackagesOfMissingPrograms) {
  const ScratchFolder folder;
  EXPECT_EQ(error_of("bench nic --only write-bw-tcp --json " + (folder / "r.json").string(),
                     [] { setenv("PATH", "/nowhere", 1); }),
            "plugfest: bench needs ib_write_bw, iperf3: run\n"
            "    sudo apt-get install --no-install-recommends perftest iperf3\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "r.json"));
}

TEST(BenchNet, MeasuresPluginsBesidePerftest) {
  if (!netns::find_program("ib_write_bw")) GTEST_SKIP() << "needs ib_write_bw, which is not installed";
  const ScratchFolder folder;
  const std::string result =
      output_of(plugfest("bench net --plugin mesh --sizes 64K --only bw-64K --rounds 1 --json " +
                         (folder / "r.json").string() + " --plot " + (folder / "r.svg").string()));
  const auto json = nlohmann::json::parse(content_of(folder / "r.json"));
  ASSERT_EQ(json["rows"].size(), 2u) << result;
  EXPECT_EQ(json["rows"][0]["subject"], "perftest");
  EXPECT_EQ(json["rows"][1]["subject"], "Mesh");
  EXPECT_GT(json["rows"][1]["ratio"], 0);
  EXPECT_THAT(content_of(folder / "r.svg"), testing::AllOf(HasSubstr("<svg"), HasSubstr("Mesh")));
}

TEST(BenchNet, RefusesWrongArguments) {
  EXPECT_THAT(error_of("bench net --only warp"),
              HasSubstr("--only warp: no such row with these sizes: expected one of bw-4K, "));
  EXPECT_THAT(error_of("bench net --sizes 8q"), HasSubstr("--sizes \"8q\": expected sizes"));
  EXPECT_THAT(error_of("bench net --plugin /nowhere.so"), HasSubstr("/nowhere.so"));
  EXPECT_EQ(error_of("bench net --plugin mesh --no-perftest --against /dev/null --rounds 2"),
            "plugfest: --against: needs --rounds 3 or more\n");
  EXPECT_THAT(error_of("bench net --plugin mesh --no-perftest --against /dev/null"),
              HasSubstr("--against /dev/null: not a file of bench net --json: "));
}

TEST(BenchRma, MeasuresPutsGetsAndSignalsBesidePerftest) {
  if (!netns::find_program("ib_atomic_lat")) GTEST_SKIP() << "needs ib_atomic_lat, which is not installed";
  const ScratchFolder folder;
  const std::string result =
      output_of(plugfest("bench rma --plugin mesh --sizes 8,64K --only put-64K --only get-64K "
                         "--only put-signal-8 --only signal --rounds 1 --json " +
                         (folder / "r.json").string()));
  const auto rows = nlohmann::json::parse(content_of(folder / "r.json"))["rows"];
  ASSERT_EQ(rows.size(), 8u) << result;
  for (std::size_t i = 1; i < rows.size(); i += 2) {
    EXPECT_EQ(rows[i]["subject"], "Mesh RMA v16");
    EXPECT_GT(rows[i]["ratio"], 0) << rows[i];
  }
  EXPECT_THAT(error_of("bench rma --no-perftest" + mutant("collnet_one_listener")),
              HasSubstr("collnet_one_listener.so has neither GIN nor RMA"));
}

TEST(BenchReduction, ComparesSwitchesWithARing) {
  const ScratchFolder folder;
  const std::string result =
      output_of(plugfest("bench reduction -t star:4 --rate 1Gbit --rounds 1 --json " + (folder / "r.json").string()));
  const auto rows = nlohmann::json::parse(content_of(folder / "r.json"))["rows"];
  ASSERT_EQ(rows.size(), 5u) << result;
  EXPECT_EQ(rows[0]["name"], "sent");
  EXPECT_GE(rows[0]["figure"], 1);
  EXPECT_GE(rows[0]["reference"], 1.5) << "a ring of four sends each byte 1.5 times";
  for (std::size_t i = 0; i < 4; ++i) EXPECT_GT(rows[i]["ratio"], 0) << rows[i];
  EXPECT_EQ(rows[4]["unit"], "MiB");
  EXPECT_GT(rows[4]["figure"], 0);
}

TEST(BenchReduction, RefusesWrongArguments) {
  EXPECT_THAT(error_of("bench reduction -t triangle"),
              HasSubstr("bench reduction: triangle:mtu=9000,rate=200Mbit has no switches that can reduce: "));
  EXPECT_THAT(error_of("bench reduction --rate fast"), HasSubstr("rate \"fast\": expected a number"));
  EXPECT_EQ(error_of("bench reduction -t star:4,rate=1Gbit --rate 2Gbit"),
            "plugfest: --rate 2Gbit: topology star:4,rate=1Gbit sets its rates: leave out --rate\n");
}

TEST(BenchFabric, WritesFiguresAndAPlot) {
  const ScratchFolder folder;
  const fs::path json = folder / "r.json", svg = folder / "r.svg";
  output_of(plugfest("bench fabric --k 2,4 --rounds 1 --json " + json.string() + " --plot " + svg.string()));
  const auto trees = nlohmann::json::parse(content_of(json))["trees"];
  ASSERT_EQ(trees.size(), 2u);
  EXPECT_EQ(trees[1]["hosts"], 16);
  EXPECT_EQ(trees[1]["switches"], 20);
  EXPECT_EQ(trees[1]["links"], 48);
  for (const char* of : {"plugfest", "bare"}) {
    EXPECT_GT(trees[1][of]["up_seconds"], 0) << of;
    EXPECT_GT(trees[1][of]["down_seconds"], 0) << of;
  }
  EXPECT_GT(trees[1]["reach_seconds"], 0);
  EXPECT_THAT(content_of(svg), AllOf(HasSubstr("<svg "), HasSubstr(">bare kernel up</text>"), HasSubstr("</svg>")));
}

TEST(BenchFabric, RefusesOddNumbersOfPorts) {
  EXPECT_EQ(error_of("bench fabric --k 3"), "plugfest: topology fat-tree:3: K \"3\": expected an even number\n");
}

}  // namespace
}  // namespace plugfest::cli
