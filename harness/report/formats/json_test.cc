#include "harness/report/formats/json.h"

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

TEST(Json, GroupsBadRulesByCause) {
  Document document;
  report::Run& run = document.runs.emplace_back();
  run.environment = {"NCCL_DEBUG=INFO"};
  for (const char* id : {"XF-09", "XF-12", "XF-14"}) {
    RuleResult& rule = run.rules.emplace_back();
    rule.id = id;
    rule.verdict = Verdict::kTimeout;
    rule.cause = {"test", "read at p.c:56"};
  }
  run.rules[1].verdict = Verdict::kPass;
  const auto json = nlohmann::json::parse(to_json(document))["runs"][0];
  EXPECT_EQ(
      json["causes"].dump(),
      "[{\"rules\":[\"XF-09\",\"XF-14\"],\"start\":\"XF-09\",\"text\":\"2 rules hang in read at p.c:56 (test)\"}]");
  EXPECT_EQ(json["environment"], std::vector<std::string>{"NCCL_DEBUG=INFO"});
}

TEST(Json, HasTheDocumentedFields) {
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

TEST(Json, ContainsFaults) {
  Document faulty = document();
  report::Run& run = faulty.runs.front();
  run.faults = {{.fault = "link a-b down", .source = "f.yaml:2", .rule = "CN-06", .start = 0.5, .end = 0.75}};
  run.rules.front().faults = run.faults;
  run.rules.front().nics = {{"a.eth0", {{"icrc_errors", 3}, {"timeouts", 1}}}};
  run.missed_faults = {{.fault = "host b killed", .source = "f.yaml:3", .reason = "CN-06 made 2 such calls"}};
  run.unfelt_faults = {{.fault = "host c killed", .source = "f.yaml:4", .reason = "no rule"}};
  const auto json = nlohmann::json::parse(to_json(faulty))["runs"].at(0);
  for (const auto& fault : {json["faults"].at(0), json["rules"].at(0)["faults"].at(0)}) {
    EXPECT_EQ(fault["fault"], "link a-b down");
    EXPECT_EQ(fault["source"], "f.yaml:2");
    EXPECT_EQ(fault["rule"], "CN-06");
    EXPECT_EQ(fault["start"], 0.5);
    EXPECT_EQ(fault["end"], 0.75);
  }
  EXPECT_EQ(json["rules"].at(0)["nics"]["a.eth0"]["icrc_errors"], 3);
  EXPECT_EQ(json["missed_faults"].at(0)["reason"], "CN-06 made 2 such calls");
  EXPECT_EQ(json["unfelt_faults"].at(0)["reason"], "no rule");
  EXPECT_FALSE(nlohmann::json::parse(to_json(document()))["runs"].at(0).contains("faults"));
}

TEST(Json, CountsEveryVerdict) {
  const auto summary = nlohmann::json::parse(to_json(document()))["summary"];
  EXPECT_EQ(summary.size(), kVerdicts.size());
  EXPECT_EQ(summary["fail"], 1);
  EXPECT_EQ(summary["pass"], 0);
}

TEST(Json, ReplacesInvalidUtf8) {
  const auto json = nlohmann::json::parse(to_json(document()));
  EXPECT_EQ(json["runs"].at(0)["rules"].at(0)["ranks"].at(0)["output"], "\xef\xbf\xbd\x01");
}

}  // namespace
}  // namespace plugfest::report
