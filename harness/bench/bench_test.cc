// The output of reference programs, and the rows, medians and tables of bench nic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>

#include "fabric/topology/graph.h"
#include "harness/bench/bench.h"
#include "harness/bench/table.h"
#include "harness/report/text.h"

namespace plugfest::bench {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kBandwidth = R"(
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Mtu             : 4096[B]
 local address: LID 0000 QPN 0x00a1b2 PSN 0x3c4d5e RKey 0x11223344 VAddr 0x007f0000000000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:100:02
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    4713             0.00               39.53              0.004713
---------------------------------------------------------------------------------------
)";

constexpr const char* kLatency = R"(
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       20000          4.10           92.33        4.75                4.98             1.20            7.10                    21.00
)";

TEST(PerftestOutput, GivesAverageBandwidthAndMessageRate) {
  const Bandwidth bandwidth = read_bandwidth("ib_write_bw", kBandwidth);
  EXPECT_DOUBLE_EQ(bandwidth.gbits_per_second, 39.53);
  EXPECT_DOUBLE_EQ(bandwidth.million_messages_per_second, 0.004713);
}

TEST(PerftestOutput, GivesMedianLatency) { EXPECT_DOUBLE_EQ(read_latency("ib_send_lat", kLatency).median_us, 4.75); }

TEST(PerftestOutput, IsShownIfItHasNoResult) {
  EXPECT_THAT([] { read_bandwidth("ib_write_bw", "Couldn't connect to 192.168.100.1:18515\n"); },
              ThrowsMessage<std::runtime_error>(
                  "no result in the output of ib_write_bw:\nCouldn't connect to 192.168.100.1:18515\n"));
  EXPECT_THAT([] { read_latency("ib_send_lat", " 8  2000  1.0  2.0  1.5\n"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("ib_send_lat")));
}

TEST(IperfOutput, GivesTheReceiversBandwidth) {
  EXPECT_DOUBLE_EQ(read_iperf(R"({"end": {"sum_sent": {"bits_per_second": 3e10},
                                          "sum_received": {"bits_per_second": 2.15e10}}})"),
                   21.5);
  EXPECT_THROW(read_iperf(R"({"error": "unable to connect"})"), std::runtime_error);
  EXPECT_THROW(read_iperf("not JSON"), std::runtime_error);
}

TEST(ProbeOutput, GivesNumbersByName) {
  EXPECT_DOUBLE_EQ(read_named("probe", "cpu_percent 0.5\nkib_per_queue_pair 12\n", "kib_per_queue_pair"), 12);
  EXPECT_THROW(read_named("probe", "cpu_percent\n", "cpu_percent"), std::runtime_error);
}

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
  for (const std::string& line : report::lines_of(table)) EXPECT_LE(report::columns(line), 80u) << line;
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
