#include "fabric/reduction/node_report.h"

#include <gtest/gtest.h>

namespace plugfest::reduction {
namespace {

TEST(NodeReport, IsTheSameAfterARoundTrip) {
  NodeReport report;
  report.groups = 2;
  report.memory_bytes = 1 << 20;
  report.counters = {.contributions = 10, .repeats = 1, .results = 5, .drops = {1, 2, 3, 4, 5}};
  nlohmann::json object = to_json(report);
  EXPECT_EQ(object["drops"]["out_of_window"], 4);
  object["switch"] = "leaf1";
  const std::optional<NodeReport> read = parse_report(object);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->switch_name, "leaf1");
  EXPECT_EQ(to_json(*read), to_json(report));
  EXPECT_EQ(read->drops(), 15u);
}

TEST(NodeReport, NeedsAllNumbers) {
  nlohmann::json object = to_json(NodeReport{});
  for (const char* name : {"groups", "memory_bytes", "contributions", "repeats", "results", "drops"}) {
    nlohmann::json less = object;
    less.erase(name);
    EXPECT_FALSE(parse_report(less)) << name;
  }
  object["drops"]["foreign"] = -1;
  EXPECT_FALSE(parse_report(object));
  EXPECT_FALSE(parse_report(nlohmann::json::array()));
}

}  // namespace
}  // namespace plugfest::reduction
