#include "harness/report/formats/json_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "harness/report/document.h"
#include "harness/report/formats/json.h"

namespace plugfest::report {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

TEST(JsonRead, ReturnsWhatWasWritten) {
  Document document;
  report::Run& run = document.runs.emplace_back();
  run.plugin_path = "/x/libfoo.so";
  run.plugin_name = "foo";
  run.apis = {12, 8};
  run.api = 8;
  run.seed = 18446744073709551615u;
  run.seconds = 1.5;
  run.rules.push_back({.id = "CN-06",
                       .title = "connect never waits",
                       .level = 'S',
                       .verdict = Verdict::kWarn,
                       .seconds = 0.5,
                       .message = "expected \"x\"\ngot\ty",
                       .known = "reason",
                       .rerun = "plugfest run",
                       .path = "a.eth0 b.eth0",
                       .ranks = {{.name = "a.eth0", .last_calls = {"listen"}, .log = {"l"}, .output = "o"}}});
  const std::vector<report::Run> runs = read_runs(to_json(document));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].seed, run.seed);
  Document again;
  again.runs = runs;
  EXPECT_EQ(to_json(again), to_json(document));
  ASSERT_EQ(runs[0].rules.size(), 1u);
  const RuleResult& rule = runs[0].rules[0];
  EXPECT_EQ(rule.id, "CN-06");
  EXPECT_EQ(rule.level, 'S');
  EXPECT_EQ(rule.verdict, Verdict::kWarn);
  EXPECT_EQ(rule.message, "expected \"x\"\ngot\ty");
  EXPECT_EQ(rule.known, "reason");
  EXPECT_EQ(rule.path, "a.eth0 b.eth0");
  EXPECT_THAT(rule.ranks.at(0).last_calls, ElementsAre("listen"));
}

std::string refusal(const std::string& text) {
  try {
    read_runs(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(JsonRead, RefusesOtherFiles) {
  for (const char* text : {"", "{}", "[]", "<html>", "{\"schema\": \"1\"}", "{\"schema\": 1, \"runs\": [{}]}",
                           "{\"schema\": 1, \"runs\": 7}"}) {
    EXPECT_THAT(refusal(text), StartsWith("not a results.json of plugfest: ")) << text;
  }
  EXPECT_EQ(refusal("{\"schema\": 2}"), "schema 2: this plugfest reads schema 1; use the plugfest that wrote the file");
}

}  // namespace
}  // namespace plugfest::report
