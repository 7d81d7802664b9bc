#include "harness/report/formats/markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plugfest::report {
namespace {

using testing::HasSubstr;
using testing::Not;

RuleResult rule(const std::string& id, Verdict verdict, std::string message = {}) {
  RuleResult it;
  it.id = id;
  it.title = "title of " + id;
  it.verdict = verdict;
  it.message = std::move(message);
  it.rerun = "plugfest run --rule " + id;
  return it;
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
  for (std::size_t i = 0; i < 400; ++i) {  // with a cause each
    rules.push_back(rule("XF-09", Verdict::kFail, std::string(1 + i % 20, 'a') + ' ' + std::string(1 + i / 20, 'b')));
    rules.back().message += '\n' + std::string(100000, 'x');
  }
  const std::string text = markdown_of(std::move(rules));
  EXPECT_LT(text.size(), std::size_t{1} << 20);
  EXPECT_THAT(text, HasSubstr("do not fit here"));
}

}  // namespace
}  // namespace plugfest::report
