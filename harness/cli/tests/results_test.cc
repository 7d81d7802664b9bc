// plugfest report, diff and verdict.

#include "harness/report/results.h"
#include "harness/cli/tests/program.h"
#include "harness/report/formats.h"

namespace plugfest::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ResultsCommands : public testing::Test {
 protected:
  std::string write(const std::string& name, report::Verdict verdict) const {
    report::Document document;
    report::Run& run = document.runs.emplace_back();
    run.plugin_name = "foo";
    run.api = 8;
    report::RuleResult& rule = run.rules.emplace_back();
    rule.id = "CN-06";
    rule.title = "connect never waits";
    rule.verdict = verdict;
    rule.message = "it waited";
    std::ofstream(folder_ / name) << to_json(document);
    return (folder_ / name).string();
  }
  const ScratchFolder folder_;
};

TEST_F(ResultsCommands, DiffExitsWith1OnlyIfAVerdictIsWorse) {
  const std::string good = write("good.json", report::Verdict::kPass), bad = write("bad.json", report::Verdict::kFail);
  EXPECT_THAT(output_of(plugfest("diff " + good + " " + bad), 1),
              HasSubstr("worse  CN-06 pass → fail  connect never waits\n         it waited\n"));
  EXPECT_EQ(plugfest("diff " + bad + " " + good).exit_code, 0);
  EXPECT_EQ(output_of(plugfest("diff " + good + " " + good)), "1 rule compared: no verdict changed\n");
}

TEST_F(ResultsCommands, ReportMakesOnePageOfSeveralFiles) {
  const std::string good = write("good.json", report::Verdict::kPass), bad = write("bad.json", report::Verdict::kFail);
  const std::string page = (folder_ / "report.html").string();
  output_of(plugfest("report " + good + " " + bad + " -o " + page));
  EXPECT_THAT(content_of(page), AllOf(HasSubstr("\"verdict\": \"pass\""), HasSubstr("\"verdict\": \"fail\"")));
  EXPECT_THAT(plugfest("report " + good).output, StartsWith("<!doctype html>"));
}

TEST_F(ResultsCommands, ReportRefusesCapturesOfOtherRulesAndOtherFiles) {
  const std::string good = write("good.json", report::Verdict::kPass);
  EXPECT_EQ(error_of("report " + good + " --pcap x.pcapng"),
            "plugfest: --pcap \"x.pcapng\": expected RULE=FILE, as in CN-06=cn06.pcapng\n");
  EXPECT_EQ(error_of("report " + good + " --pcap CN-06=" + good),
            "plugfest: " + good + ": offset 0: not a pcapng file\n");
  EXPECT_EQ(error_of("report " + good + " --pcap CN-06=/nowhere"),
            "plugfest: /nowhere: cannot read: No such file or directory\n");
}

TEST_F(ResultsCommands, ReportRefusesCapturesOfRulesWithoutAResult) {
  // A section header without packets.
  const std::uint32_t capture[] = {0x0a0d0d0a, 28, 0x1a2b3c4d, 1, ~0u, ~0u, 28};
  std::ofstream(folder_ / "x.pcapng", std::ios::binary).write(reinterpret_cast<const char*>(capture), sizeof capture);
  const std::string option = "CN-07=" + (folder_ / "x.pcapng").string();
  EXPECT_EQ(error_of("report " + write("good.json", report::Verdict::kPass) + " --pcap " + option),
            "plugfest: --pcap \"" + option + "\": no result has a rule CN-07\n");
}

TEST_F(ResultsCommands, NameFilesThatAreNoResults) {
  const std::string good = write("good.json", report::Verdict::kPass);
  std::ofstream(folder_ / "other.json") << "[1]";
  EXPECT_THAT(error_of("report " + (folder_ / "other.json").string()),
              HasSubstr("other.json: not a results.json of plugfest: "));
  EXPECT_EQ(error_of("diff " + good + " /nowhere.json"),
            "plugfest: /nowhere.json: cannot read: No such file or directory\n");
  EXPECT_EQ(error_of("diff " + good + " /tmp"), "plugfest: /tmp: cannot read: Is a directory\n");
}

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
  Finished verdict(const std::string& rules) const { return plugfest("verdict '" + path() + "' " + rules); }

  ScratchFolder folder_;
};

TEST_F(VerdictOfRules, IsThatOfARunWithTheseRulesAlone) {
  EXPECT_EQ(verdict("CN").exit_code, 0);
  EXPECT_EQ(verdict("CN-06").exit_code, 0);
  EXPECT_EQ(verdict("XF-02").exit_code, 0);
  const Finished failed = verdict("XF");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.output, AllOf(HasSubstr("because of XF-01"), HasSubstr("again:  plugfest run --rule XF-01"),
                                   HasSubstr("1 fail, 1 warn"), Not(HasSubstr("TS-01"))));
  EXPECT_EQ(verdict("TS-01").exit_code, 2);
  EXPECT_EQ(verdict("").exit_code, 2);
}

TEST_F(VerdictOfRules, Is77IfNoRuleWasTested) {
  EXPECT_EQ(verdict("FL").exit_code, 77);
  EXPECT_EQ(verdict("'CN-07'").exit_code, 77);
  EXPECT_THAT(verdict("FL-01").output, HasSubstr("because of FL-01"));
}

TEST_F(VerdictOfRules, RefusesMissingRulesAndInvalidFiles) {
  EXPECT_EQ(error_of("verdict '" + path() + "' CN-99"),
            "plugfest: " + path() + ": no rule CN-99: it has rules of CN, FL, TS, XF\n");
  EXPECT_EQ(error_of("verdict /nothing.json"), "plugfest: /nothing.json: cannot read: No such file or directory\n");
  EXPECT_THAT(error_of("verdict /etc/passwd"), HasSubstr("/etc/passwd: not a results.json of plugfest: "));
  EXPECT_THAT(error_of("verdict /tmp"), HasSubstr("/tmp: "));
}

}  // namespace
}  // namespace plugfest::cli
