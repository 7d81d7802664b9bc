#include "harness/report/formats/curves_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fabric/system/testing/scratch_folder.h"
#include "harness/report/formats/json_read.h"

namespace plugfest::report {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr const char* kBench = R"({"schema": 1, "tool": {"version": "1", "commit": ""},
  "environment": {"kernel": "k", "cpu": "c", "privileges": "root", "load": [0, 0]}, "line_rate": 10000000000, "rows": [
  {"name": "bw-4K", "subject": "perftest", "size": 4096, "value": 2.5, "unit": "Gbit/s"},
  {"name": "bw-4K", "subject": "Mesh", "size": 4096, "value": 2, "unit": "Gbit/s"},
  {"name": "bw-1M", "subject": "Mesh", "size": 1048576, "value": 8, "unit": "Gbit/s"},
  {"name": "bw-4x1M", "subject": "Mesh", "size": 1048576, "value": 9, "unit": "Gbit/s"},
  {"name": "bw-both-1M", "subject": "Mesh", "size": 1048576, "value": 9, "unit": "Gbit/s"},
  {"name": "lat-8", "subject": "Mesh", "size": 8, "value": 5, "unit": "µs"},
  {"name": "lat-p99-8", "subject": "Mesh", "size": 8, "value": 9, "unit": "µs"}]})";

TEST(CurvesRead, TakesBandwidthAndLatencyOfBenchNet) {
  const std::optional<Document> document = read_curves(nlohmann::json::parse(kBench));
  ASSERT_TRUE(document);
  ASSERT_EQ(document->curves.size(), 4u);
  const std::vector<Curve>& curves = document->curves;
  EXPECT_EQ(curves[0].subject, "perftest");
  EXPECT_EQ(curves[0].kind, Curve::Kind::kReference);
  EXPECT_EQ(curves[1].kind, Curve::Kind::kLimit);
  EXPECT_THAT(curves[1].points, ElementsAre(Pair(4096, 10), Pair(1048576, 10)));
  EXPECT_EQ(curves[2].measure, "bandwidth, one comm");
  EXPECT_THAT(curves[2].points, ElementsAre(Pair(4096, 2), Pair(1048576, 8)));
  EXPECT_EQ(curves[3].unit, "µs");
  EXPECT_THAT(curves[3].points, ElementsAre(Pair(8, 5)));
}

TEST(CurvesRead, TakesCollectives) {
  const std::optional<Document> document = read_curves(nlohmann::json::parse(
      R"({"tool": "plugfest coll", "collective": "allreduce", "topology": "triangle", "nic": "roce", "sizes": [
      {"bytes": 8, "results": [{"plugin": "/x/libfoo.so", "busbw": 0.5}, {"plugin": "nccl:IB", "busbw": 1}]}]})"));
  ASSERT_TRUE(document);
  ASSERT_EQ(document->curves.size(), 2u);
  EXPECT_EQ(document->curves[0].measure, "bus bandwidth of allreduce");
  EXPECT_EQ(document->curves[0].subject, "libfoo.so");
  EXPECT_EQ(document->environment.nic, "roce");
}

std::string refusal(const std::string& text) {
  const ScratchFolder folder;
  std::ofstream(folder / "x.json") << text;
  try {
    read_results_or_curves((folder / "x.json").string());
  } catch (const std::runtime_error& error) {
    return std::string(error.what()).substr((folder / "x.json").string().size());
  }
  return "accepted";
}

TEST(CurvesRead, RefusesOtherFiles) {
  EXPECT_THAT(refusal("[1]"), testing::StartsWith(": not a results.json of plugfest: "));
  EXPECT_THAT(refusal("{\"rows\": []}"), testing::StartsWith(": not a results.json of plugfest: "));
  EXPECT_EQ(refusal("{\"schema\": 2}"),
            ": schema 2: this plugfest reads schema 1; use the plugfest that wrote the file");
  std::string negative = kBench;
  negative.replace(negative.find("2.5"), 3, "-25");
  EXPECT_EQ(refusal(negative), ": -25: not a figure");
  std::string none = kBench;
  none.resize(none.find("\"rows\""));
  EXPECT_EQ(refusal(none + "\"rows\": []}"), ": has no figures by message size; expected bench net --json");
}

}  // namespace
}  // namespace plugfest::report
