#include "harness/report/formats/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plugfest::report {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Document document_of(Verdict verdict, const std::string& message) {
  RuleResult rule;
  rule.id = "XF-26";
  rule.title = "sizes of a multi-receive";
  rule.text = "A group is done only when all its buffers are filled.";
  rule.source = "net.cc: ncclIbTest";
  rule.verdict = verdict;
  rule.message = message;
  rule.rerun = "plugfest run --rule XF-26";
  rule.ranks = {{.name = "a.eth0", .last_calls = {"isend → Success"}, .log = {"WARN boo"}, .output = "bye"}};
  Run run;
  run.plugin_name = "f<o>o";
  run.api = 8;
  run.rules = {rule};
  Document document;
  document.version = "0.1.0";
  document.runs = {run};
  return document;
}

TEST(Html, ExpandsBrokenRulesWithAllDetails) {
  const std::string page = to_html(document_of(Verdict::kFail, "sizes[1] = 4096"));
  EXPECT_THAT(page, HasSubstr("<details class=\"rule\" id=\"v8-XF-26\" data-verdict=\"fail\" open>"));
  EXPECT_THAT(page, AllOf(HasSubstr("<pre>sizes[1] = 4096</pre>"), HasSubstr("A group is done only when"),
                          HasSubstr("Source: net.cc: ncclIbTest"), HasSubstr("isend → Success"), HasSubstr("WARN boo"),
                          HasSubstr("plugfest run --rule XF-26")));
  EXPECT_THAT(to_html(document_of(Verdict::kPass, "")), Not(HasSubstr("data-verdict=\"pass\" open")));
}

TEST(Html, HasFiltersForOccurringVerdicts) {
  const std::string page = to_html(document_of(Verdict::kNotApplicable, "for v11"));
  EXPECT_THAT(page, HasSubstr("<button type=\"button\" data-verdict=\"na\""));
  EXPECT_THAT(page, Not(HasSubstr("<button type=\"button\" data-verdict=\"fail\"")));
}

TEST(Html, EscapesTextOfPlugins) {
  const std::string page = to_html(document_of(Verdict::kFail, "<script>alert(1)</script>\x1b[2J"));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;?[2J"));
  EXPECT_THAT(page, HasSubstr("<h1>plugfest: f&lt;o&gt;o</h1>"));
}

TEST(Html, ShowsFaultsAndThoseThatNeverStarted) {
  Document document = document_of(Verdict::kFail, "lost");
  plugfest::report::Run& run = document.runs.front();
  run.rules.front().faults = {{.fault = "link a-b down", .source = "f.yaml:2", .rule = {}, .start = 0.5, .end = 0.75}};
  run.missed_faults = {{.fault = "host b killed", .source = "f.yaml:3", .reason = "XF-26 made 2 such calls"}};
  EXPECT_THAT(to_html(document),
              AllOf(HasSubstr("fault 0.500 to 0.750 s: link a-b down"),
                    HasSubstr("fault host b killed (f.yaml:3) never started: XF-26 made 2 such calls")));
}

TEST(Html, ExpandsOneRulePerCause) {
  Document document = document_of(Verdict::kFail, "test of message 1 returned ncclInternalError (3)");
  RuleResult other = document.runs[0].rules[0];
  other.id = "XF-27";
  document.runs[0].rules.push_back(other);
  const std::string page = to_html(document);
  EXPECT_THAT(page, HasSubstr("<p class=\"fail\">2 rules fail: test returned ncclInternalError (3); start with "
                              "<a href=\"#v8-XF-26\">XF-26</a></p>"));
  EXPECT_THAT(page, HasSubstr("id=\"v8-XF-26\" data-verdict=\"fail\" open>"));
  EXPECT_THAT(page, HasSubstr("id=\"v8-XF-27\" data-verdict=\"fail\">"));
}

TEST(Html, NeedsNoExternalFile) {
  const std::string page = to_html(document_of(Verdict::kPass, ""));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("http:")), Not(HasSubstr("https:")), Not(HasSubstr("src=")),
                          Not(HasSubstr("@import"))));
}

TEST(Html, ShowsAMatrixOfSeveralRuns) {
  Document first = document_of(Verdict::kFail, "sizes"), second = document_of(Verdict::kPass, "");
  RuleResult passing = second.runs[0].rules[0];
  passing.id = "XF-27";
  first.runs[0].rules.push_back(passing);
  second.runs[0].rules.push_back(passing);
  second.environment.nic = "rxe";
  const std::string page = to_html(std::vector{first, second});
  EXPECT_THAT(page, AllOf(HasSubstr("<tr><th>XF-26</th><td class=\"fail\"><a href=\"#v8-XF-26\">fail</a></td>"
                                    "<td class=\"pass\"><a href=\"#2-v8-XF-26\">pass</a></td></tr>"),
                          HasSubstr("1 rule passed in all runs."), HasSubstr("id=\"2-v8-XF-26\""),
                          HasSubstr("<th>f&lt;o&gt;o v8<br>rxe, </th>"), Not(HasSubstr("<tr><th>XF-27"))));
  EXPECT_THAT(to_html(first), Not(HasSubstr("class=\"matrix\">")));
}

TEST(Html, ShowsHowNcclLoadedThePlugin) {
  Document document = document_of(Verdict::kPass, "");
  document.loader = Loader{};
  document.loader->deviation = "NCCL 2.28.9 takes no version of it";
  document.loader->log = "NET/Plugin: no";
  EXPECT_THAT(to_html(document),
              AllOf(HasSubstr("<h2 class=\"fail\">NCCL's loader: NCCL 2.28.9 takes no version of it</h2>"),
                    HasSubstr("<pre>NET/Plugin: no</pre>")));
}

}  // namespace
}  // namespace plugfest::report
