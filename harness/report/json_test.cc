#include "harness/report/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

Document document() {
  Document document;
  document.version = "1.2.3";
  document.environment = this_environment();
  document.environment.topology = "triangle";
  Run run;
  run.plugin_name = "foo";
  run.apis = {12, 8};
  run.api = 8;
  run.rules.push_back({.id = "CN-06",
                       .title = "connect never waits",
                       .level = 'M',
                       .verdict = Verdict::kFail,
                       .seconds = 0.5,
                       .message = "expected \"x\"\ngot\ty",
                       .known = {},
                       .rerun = "plugfest run",
                       .path = "a.eth0 b.eth0",
                       .ranks = {{.name = "a.eth0", .last_calls = {"listen"}, .log = {}, .output = "\xff\x01"}}});
  document.runs.push_back(run);
  return document;
}

TEST(Json, HasTheFieldsThatReadersRelyOn) {
  const auto json = nlohmann::json::parse(to_json(document()));
  EXPECT_EQ(json["schema"], kSchema);
  EXPECT_EQ(json["tool"]["version"], "1.2.3");
  EXPECT_EQ(json["environment"]["topology"], "triangle");
  EXPECT_NE(json["environment"]["kernel"], "");
  const auto& run = json["runs"].at(0);
  EXPECT_EQ(run["plugin"]["versions"], (std::vector<int>{12, 8}));
  EXPECT_EQ(run["api"], 8);
  EXPECT_EQ(run["rules"].at(0)["verdict"], "fail");
  EXPECT_EQ(run["rules"].at(0)["message"], "expected \"x\"\ngot\ty");
  EXPECT_EQ(run["rules"].at(0)["ranks"].at(0)["last_calls"].at(0), "listen");
}

TEST(Json, CountsEveryVerdictZeroesToo) {
  const auto summary = nlohmann::json::parse(to_json(document()))["summary"];
  EXPECT_EQ(summary.size(), kVerdicts.size());
  EXPECT_EQ(summary["fail"], 1);
  EXPECT_EQ(summary["pass"], 0);
}

TEST(Json, TakesBytesThatAreNoUtf8) {
  const auto json = nlohmann::json::parse(to_json(document()));
  EXPECT_EQ(json["runs"].at(0)["rules"].at(0)["ranks"].at(0)["output"], "\xef\xbf\xbd\x01");
}

}  // namespace
}  // namespace plugfest::report
