#include "harness/report/formats/junit.h"

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
  const std::string junit = junit_of(Verdict::kFail, "a<b & \"c\"\x1b[31m \xff\xc3\xa9");
  EXPECT_THAT(junit, HasSubstr("a&lt;b &amp; &quot;c&quot;?[31m ?\xc3\xa9"));
  EXPECT_THAT(junit, HasSubstr("name=\"f&lt;o&gt;o v8\""));
}

TEST(Junit, ContainsTheSeed) {
  EXPECT_THAT(junit_of(Verdict::kPass, ""), HasSubstr("<property name=\"seed\" value=\"41\"/>"));
}

TEST(Junit, FailsIfNcclsLoaderDeviates) {
  Document document;
  document.loader = Loader{};
  document.loader->nccl = "2.28.9";
  document.loader->name = "Mesh";
  document.loader->devices = 2;
  EXPECT_THAT(to_junit(document), HasSubstr("<system-out>NCCL 2.28.9 selects Mesh v0, 2 devices</system-out>"));
  document.loader->deviation = "NCCL 2.28.9 takes no version of it";
  document.loader->log = "NET/Plugin: <none>";
  EXPECT_THAT(to_junit(document), HasSubstr("<failure message=\"NCCL 2.28.9 takes no version of it\" type=\"fail\">"));
  EXPECT_THAT(to_junit(document), HasSubstr("NET/Plugin: &lt;none&gt;"));
}

}  // namespace
}  // namespace plugfest::report
