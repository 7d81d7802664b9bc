// plugfest verdict: exit codes and messages of parts of a results.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "fabric/system/testing.h"
#include "harness/cli/tests/program.h"
#include "harness/report/json.h"
#include "harness/report/results.h"

namespace plugfest::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class VerdictOfRules : public testing::Test {
 protected:
  VerdictOfRules() {
    report::Document document;
    report::Run& run = document.runs.emplace_back();
    run.plugin_name = "foo";
    run.api = 8;
    using enum report::Verdict;
    for (const auto& [id, verdict] : {std::pair{"CN-06", kPass},
                                      {"CN-07", kNotApplicable},
                                      {"FL-01", kSkip},
                                      {"FL-02", kNotApplicable},
                                      {"XF-01", kFail},
                                      {"XF-02", kWarn},
                                      {"TS-01", kError}}) {
      report::RuleResult& rule = run.rules.emplace_back();
      rule.id = id;
      rule.verdict = verdict;
      rule.message = std::string("because of ") + id;
      rule.rerun = std::string("plugfest run --rule ") + id;
    }
    std::ofstream(path()) << report::to_json(document);
  }
  std::string path() const { return (folder_ / "with space.json").string(); }
  ShellResult verdict(const std::string& rules) const { return plugfest("verdict '" + path() + "' " + rules); }

  ScratchFolder folder_;
};

TEST_F(VerdictOfRules, IsThatOfARunWithTheseRulesAlone) {
  EXPECT_EQ(verdict("CN").exit_code, 0);
  EXPECT_EQ(verdict("CN-06").exit_code, 0);
  EXPECT_EQ(verdict("XF-02").exit_code, 0);
  const ShellResult failed = verdict("XF");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.output, AllOf(HasSubstr("because of XF-01"), HasSubstr("again:  plugfest run --rule XF-01"),
                                   HasSubstr("1 fail, 1 warn"), Not(HasSubstr("TS-01"))));
  EXPECT_EQ(verdict("TS-01").exit_code, 2);
  EXPECT_EQ(verdict("").exit_code, 2);
}

TEST_F(VerdictOfRules, Is77IfNoneWasJudged) {
  EXPECT_EQ(verdict("FL").exit_code, 77);
  EXPECT_EQ(verdict("'CN-07'").exit_code, 77);
  EXPECT_THAT(verdict("FL-01").output, HasSubstr("because of FL-01"));
}

TEST_F(VerdictOfRules, RefusesRulesAndFilesThatAreNotThere) {
  EXPECT_EQ(error_of("verdict '" + path() + "' CN-99"),
            "plugfest: " + path() + ": no rule CN-99: it has rules of CN, FL, TS, XF\n");
  EXPECT_EQ(error_of("verdict /nothing.json"), "plugfest: /nothing.json: cannot read: No such file or directory\n");
  EXPECT_THAT(error_of("verdict /etc/passwd"), HasSubstr("/etc/passwd: not a results.json of plugfest: "));
  EXPECT_THAT(error_of("verdict /tmp"), HasSubstr("/tmp: "));
}

}  // namespace
}  // namespace plugfest::cli
