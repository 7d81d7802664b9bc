#include "harness/report/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plugfest::report {
namespace {

using testing::ElementsAre;

Document document(const std::string& plugin, int api, const std::vector<std::pair<std::string, Verdict>>& verdicts) {
  Document result;
  report::Run& run = result.runs.emplace_back();
  run.plugin_name = plugin;
  run.api = api;
  for (const auto& [id, verdict] : verdicts) {
    RuleResult rule;
    rule.id = id;
    rule.title = "title";
    rule.verdict = verdict;
    rule.message = verdict == Verdict::kFail ? "sizes[0] = 1\nmore" : "";
    run.rules.push_back(rule);
  }
  return result;
}

TEST(Comparison, NamesWorseRulesFirst) {
  const Comparison comparison =
      compare(document("foo", 8, {{"A-1", Verdict::kFail}, {"A-2", Verdict::kPass}, {"A-3", Verdict::kPass}}),
              document("foo", 8, {{"A-1", Verdict::kPass}, {"A-2", Verdict::kFail}, {"A-3", Verdict::kPass}}));
  EXPECT_TRUE(comparison.any_worse());
  EXPECT_EQ(describe(comparison),
            "foo v8\n"
            "  worse  A-2 pass → fail  title\n"
            "         sizes[0] = 1\n"
            "  better A-1 fail → pass  title\n"
            "3 rules compared: 1 worse, 1 better, 0 otherwise changed\n");
}

TEST(Comparison, WarningIsWorseThanPassAndBetterThanFail) {
  const auto kind = [](Verdict before, Verdict after) {
    return compare(document("foo", 8, {{"A-1", before}}), document("foo", 8, {{"A-1", after}})).changes.at(0).kind;
  };
  EXPECT_EQ(kind(Verdict::kPass, Verdict::kWarn), Change::Kind::kWorse);
  EXPECT_EQ(kind(Verdict::kFail, Verdict::kWarn), Change::Kind::kBetter);
  EXPECT_EQ(kind(Verdict::kPass, Verdict::kSkip), Change::Kind::kWorse);
  EXPECT_EQ(kind(Verdict::kSkip, Verdict::kPass), Change::Kind::kOther);
  EXPECT_EQ(kind(Verdict::kFail, Verdict::kCrash), Change::Kind::kOther);
}

TEST(Comparison, RuleThatIsNoLongerRunIsWorse) {
  const Comparison comparison =
      compare(document("foo", 8, {{"A-1", Verdict::kPass}}), document("foo", 8, {{"A-2", Verdict::kPass}}));
  EXPECT_TRUE(comparison.any_worse());
  EXPECT_EQ(describe(comparison),
            "foo v8\n"
            "  worse  A-1 pass → not run  title\n"
            "  other  A-2 not run → pass  title\n"
            "0 rules compared: 1 worse, 0 better, 1 otherwise changed\n");
}

TEST(Comparison, MatchesVersionsAndNamesOtherSubjects) {
  Document before = document("foo", 8, {{"A-1", Verdict::kPass}});
  Document after = document("foo", 8, {{"A-1", Verdict::kPass}});
  after.runs.push_back(document("foo", 9, {{"A-1", Verdict::kFail}}).runs.front());
  const Comparison comparison = compare(before, after);
  EXPECT_FALSE(comparison.any_worse());
  EXPECT_THAT(comparison.alone, ElementsAre("only in the second: foo v9"));
}

TEST(Comparison, ComparesTwoPluginsOfDifferentNames) {
  const Comparison comparison =
      compare(document("foo", 8, {{"A-1", Verdict::kPass}}), document("bar", 8, {{"A-1", Verdict::kFail}}));
  ASSERT_EQ(comparison.changes.size(), 1u);
  EXPECT_EQ(comparison.changes[0].subject, "foo v8 and bar v8");
}

TEST(Comparison, SaysWhenNothingChanged) {
  const Document same = document("foo", 8, {{"A-1", Verdict::kPass}});
  EXPECT_EQ(describe(compare(same, same)), "1 rule compared: no verdict changed\n");
}

}  // namespace
}  // namespace plugfest::report
