// plugfest report and diff.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "fabric/system/testing.h"
#include "harness/cli/tests/program.h"
#include "harness/report/json.h"

namespace plugfest::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
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
  const ShellResult worse = plugfest("diff " + good + " " + bad);
  EXPECT_EQ(worse.exit_code, 1);
  EXPECT_THAT(worse.output, HasSubstr("worse  CN-06 pass → fail  connect never waits\n         it waited\n"));
  EXPECT_EQ(plugfest("diff " + bad + " " + good).exit_code, 0);
  const ShellResult same = plugfest("diff " + good + " " + good);
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_EQ(same.output, "1 rule compared: no verdict changed\n");
}

TEST_F(ResultsCommands, ReportMakesOnePageOfSeveralFiles) {
  const std::string good = write("good.json", report::Verdict::kPass), bad = write("bad.json", report::Verdict::kFail);
  const std::string page = (folder_ / "report.html").string();
  const ShellResult result = plugfest("report " + good + " " + bad + " -o " + page);
  EXPECT_EQ(result.exit_code, 0) << result.output;
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

TEST_F(ResultsCommands, NameFilesThatAreNoResults) {
  const std::string good = write("good.json", report::Verdict::kPass);
  std::ofstream(folder_ / "other.json") << "[1]";
  EXPECT_THAT(error_of("report " + (folder_ / "other.json").string()),
              HasSubstr("other.json: not a results.json of plugfest: "));
  EXPECT_EQ(error_of("diff " + good + " /nowhere.json"),
            "plugfest: /nowhere.json: cannot read: No such file or directory\n");
  EXPECT_EQ(error_of("diff " + good + " /tmp"), "plugfest: /tmp: cannot read: Is a directory\n");
}

}  // namespace
}  // namespace plugfest::cli
