#include "harness/report/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plugfest::report {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string junit_of(Verdict verdict, std::string message) {
  Document document;
  Run run;
  run.plugin_name = "f<o>o";
  run.api = 8;
  run.seed = 41;
  run.rules.push_back({.id = "XF-26",
                       .title = "sizes",
                       .level = 'M',
                       .verdict = verdict,
                       .seconds = 0,
                       .message = std::move(message),
                       .known = {},
                       .rerun = "plugfest run --rule XF-26",
                       .path = {},
                       .ranks = {}});
  document.runs.push_back(run);
  return to_junit(document);
}

TEST(Junit, DistinguishesFailuresFromErrors) {
  EXPECT_THAT(junit_of(Verdict::kFail, "got 3"), HasSubstr("<failure message=\"got 3\" type=\"fail\">"));
  EXPECT_THAT(junit_of(Verdict::kTimeout, "hung"), HasSubstr("<failure message=\"hung\" type=\"timeout\">"));
  EXPECT_THAT(junit_of(Verdict::kError, "no fabric"), HasSubstr("<error message=\"no fabric\" type=\"error\">"));
  EXPECT_THAT(junit_of(Verdict::kMissing, ""), HasSubstr("errors=\"1\""));
  EXPECT_THAT(junit_of(Verdict::kSkip, "no GPU"), HasSubstr("<skipped message=\"no GPU\">"));
  EXPECT_THAT(junit_of(Verdict::kPass, ""), Not(HasSubstr("<failure")));
}

TEST(Junit, ContainsTheCommandThatRepeatsARule) {
  EXPECT_THAT(junit_of(Verdict::kFail, "got 3"), HasSubstr("again: plugfest run --rule XF-26"));
}

TEST(Junit, NamesTheCauseThatRulesShare) {
  Document document;
  report::Run& run = document.runs.emplace_back();
  for (const char* id : {"XF-09", "XF-12"}) {
    RuleResult& rule = run.rules.emplace_back();
    rule.id = id;
    rule.verdict = Verdict::kTimeout;
    rule.message = "did not return";
    rule.cause = {"test", "read at p.c:56"};
  }
  EXPECT_THAT(to_junit(document), HasSubstr(">did not return&#10;cause: 2 rules hang in read at p.c:56 (test); start "
                                            "with XF-09&#10;again: "));
}

TEST(Junit, EscapesTextOfPlugins) {
  const std::string junit = junit_of(Verdict::kFail, "a<b & \"c\"\x1b[31m \xff\xc3\xa9\xef\xbf\xbf");
  EXPECT_THAT(junit, HasSubstr("a&lt;b &amp; &quot;c&quot;?[31m ?\xc3\xa9???"));
  EXPECT_THAT(junit, HasSubstr("name=\"f&lt;o&gt;o v8\""));
}

TEST(Junit, ContainsTheSeed) {
  EXPECT_THAT(junit_of(Verdict::kPass, ""), HasSubstr("<property name=\"seed\" value=\"41\"/>"));
}

RuleResult rule(const std::string& id, Verdict verdict, std::string message = {}) {
  RuleResult rule;
  rule.id = id;
  rule.title = "title of " + id;
  rule.verdict = verdict;
  rule.message = std::move(message);
  rule.rerun = "plugfest run --rule " + id;
  return rule;
}

std::string markdown_of(std::vector<RuleResult> rules) {
  Run run;
  run.plugin_name = "foo";
  run.api = 8;
  run.rules = std::move(rules);
  Document document;
  document.version = "0.1.0";
  document.runs = {run};
  return to_markdown(document);
}

TEST(Markdown, ListsRulesThatDidNotPass) {
  const std::string text = markdown_of({rule("CN-06", Verdict::kPass), rule("XF-09", Verdict::kFail, "got 3\nsent 4"),
                                        rule("XF-26", Verdict::kNotApplicable, "for v11")});
  EXPECT_THAT(text, HasSubstr("### ❌ foo v8: 1 pass, 1 fail, 1 n/a\n"));
  EXPECT_THAT(text, HasSubstr("| ❌ fail | XF-09 | title of XF-09 | got 3 |\n"));
  EXPECT_THAT(text, HasSubstr("<pre>got 3&#10;sent 4</pre>"));
  EXPECT_THAT(text, HasSubstr("<pre>plugfest run --rule XF-09</pre>"));
  EXPECT_THAT(text, Not(HasSubstr("CN-06")));
  EXPECT_THAT(text, Not(HasSubstr("XF-26")));
}

TEST(Markdown, HasOneDetailPerCause) {
  const std::string text = markdown_of({rule("XF-09", Verdict::kFail, "message 1: sizes[0] = 0"),
                                        rule("XF-12", Verdict::kFail, "message 7: sizes[0] = 0")});
  EXPECT_THAT(text, HasSubstr("- **2 rules fail: message 1: sizes\\[0] = 0; start with XF-09**: XF-09 XF-12\n"));
  EXPECT_THAT(text, HasSubstr("| ❌ fail | XF-12 |"));
  EXPECT_THAT(text, HasSubstr("<pre>plugfest run --rule XF-09</pre>"));
  EXPECT_THAT(text, Not(HasSubstr("<pre>plugfest run --rule XF-12</pre>")));
}

TEST(Markdown, ShowsFaults) {
  RuleResult failed = rule("XF-09", Verdict::kFail, "lost");
  failed.faults = {{.fault = "link a-b down", .source = "f.yaml:2", .rule = {}, .start = 0.5, .end = 0.75}};
  EXPECT_THAT(markdown_of({failed}), HasSubstr("fault 0.500 to 0.750 s: link a-b down (f.yaml:2)\n"));
}

TEST(Markdown, HasNoTableIfAllRulesPass) {
  const std::string text = markdown_of({rule("CN-06", Verdict::kPass)});
  EXPECT_THAT(text, HasSubstr("### ✅ foo v8: 1 pass\n"));
  EXPECT_THAT(text, Not(HasSubstr("| verdict |")));
}

TEST(Markdown, EscapesTextOfPlugins) {
  EXPECT_THAT(markdown_of({rule("XF-09", Verdict::kFail, "a|b *c* <d>")}), HasSubstr("| a\\|b \\*c\\* &lt;d&gt; |"));
}

TEST(Markdown, StaysBelowGithubsLimit) {
  std::vector<RuleResult> rules;
  for (std::size_t i = 0; i < 400; ++i) {  // each has its own cause
    rules.push_back(rule("XF-09", Verdict::kFail, std::string(1 + i % 20, 'a') + ' ' + std::string(1 + i / 20, 'b')));
    rules.back().message += '\n' + std::string(100000, 'x');
  }
  const std::string text = markdown_of(std::move(rules));
  EXPECT_LT(text.size(), std::size_t{1} << 20);
  EXPECT_THAT(text, HasSubstr("do not fit here"));
}

std::string badge_of(Verdict verdict, const std::string& name = "foo") {
  Document document;
  report::Run& run = document.runs.emplace_back();
  run.plugin_name = name;
  run.api = 8;
  run.rules.emplace_back().verdict = verdict;
  return to_badge(document);
}

std::string expected(const std::string& message, const std::string& color) {
  return "{\"schemaVersion\": 1, \"label\": \"plugfest\", \"message\": \"" + message + "\", \"color\": \"" + color +
         "\"}\n";
}

TEST(Badge, HasAColorForEachExitCode) {
  EXPECT_EQ(badge_of(Verdict::kPass), expected("foo v8: 1 pass", "brightgreen"));
  EXPECT_EQ(badge_of(Verdict::kWarn), expected("foo v8: 1 warn", "yellow"));
  EXPECT_EQ(badge_of(Verdict::kTimeout), expected("foo v8: 1 timeout", "red"));
  EXPECT_EQ(badge_of(Verdict::kError), expected("foo v8: 1 error", "lightgrey"));
}

TEST(Badge, QuotesNamesOfPlugins) {
  EXPECT_EQ(badge_of(Verdict::kPass, "a\"b\\"), expected("a\\\"b\\\\ v8: 1 pass", "brightgreen"));
  Document document;
  document.runs.resize(2);
  EXPECT_EQ(to_badge(document), expected("no rules", "lightgrey"));
}

}  // namespace
}  // namespace plugfest::report
