#include "harness/report/known_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>

#include "fabric/system/testing.h"

namespace plugfest::report {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr const char* kToday = "2026-11-21";

// The result of rule DP-04 with `verdict` after `finding` was applied.
RuleResult apply(Verdict verdict, KnownFinding finding, const std::string& plugin_path = "nccl:Socket",
                 const std::string& plugin_name = "Socket") {
  RuleResult result;
  result.id = "DP-04";
  result.verdict = verdict;
  KnownFindings({std::move(finding)}).about(plugin_path, plugin_name).apply(result, kToday);
  return result;
}

KnownFinding finding(const std::string& subject, const std::string& expires = "") {
  return {"DP-04", subject, "stays unwritten", expires, "known.yaml:2"};
}

TEST(KnownFindings, WaiveBrokenRules) {
  for (const Verdict verdict : {Verdict::kFail, Verdict::kCrash, Verdict::kTimeout, Verdict::kWarn}) {
    const RuleResult result = apply(verdict, finding("nccl:Socket"));
    EXPECT_EQ(result.verdict, Verdict::kWaived);
    EXPECT_EQ(result.known, "known finding: stays unwritten (known.yaml:2)");
  }
}

TEST(KnownFindings, DoNotWaiveErrorsOfTheHarness) {
  for (const Verdict verdict : {Verdict::kError, Verdict::kMissing})
    EXPECT_EQ(apply(verdict, finding("nccl:Socket")).verdict, verdict);
}

TEST(KnownFindings, MatchAPluginByNamePathOrFileName) {
  const std::string path = "/opt/lib/libnccl-net-foo.so";
  for (const char* subject : {"Foo", "libnccl-net-foo.so", "/opt/lib/*", "*foo.so"})
    EXPECT_EQ(apply(Verdict::kFail, finding(subject), path, "Foo").verdict, Verdict::kWaived) << subject;
  EXPECT_EQ(apply(Verdict::kFail, finding("Fo"), path, "Foo").verdict, Verdict::kFail);
}

TEST(KnownFindings, ExpireAfterTheirLastDay) {
  EXPECT_EQ(apply(Verdict::kFail, finding("Socket", kToday)).verdict, Verdict::kWaived);
  const RuleResult late = apply(Verdict::kFail, finding("Socket", "2026-11-20"));
  EXPECT_EQ(late.verdict, Verdict::kFail);
  EXPECT_EQ(late.known, "no longer waived, known.yaml:2 expired on 2026-11-20: stays unwritten");
}

TEST(KnownFindings, ReportARulePassingAgainstExpectation) {
  const RuleResult result = apply(Verdict::kPass, finding("Socket"));
  EXPECT_EQ(result.verdict, Verdict::kPass);
  EXPECT_EQ(result.known, "passes although known.yaml:2 expects it to fail: remove that finding");
}

TEST(KnownFindings, ExpectNoFailureOfASeldomBrokenRule) {
  KnownFinding seldom = finding("Socket");
  seldom.seldom = true;
  EXPECT_EQ(apply(Verdict::kPass, seldom).known, "");
  EXPECT_EQ(apply(Verdict::kFail, seldom).verdict, Verdict::kWaived);
}

class KnownFindingsFile : public testing::Test {
 protected:
  KnownFindings read(const std::string& text) {
    std::ofstream(path_) << text;
    return KnownFindings::read(path_);
  }
  std::string refusal(const std::string& text) {
    return error_message([&] { read(text); });
  }

  ScratchFolder folder_;
  const std::string path_ = folder_ / "known.yaml";
};

TEST_F(KnownFindingsFile, IsYamlOrJson) {
  const KnownFindings yaml = read("findings:\n  - {rule: DP-04, subject: Foo, reason: why, expires: 2027-03-31}\n");
  ASSERT_EQ(yaml.all().size(), 1u);
  EXPECT_EQ(yaml.all()[0].expires, "2027-03-31");
  EXPECT_THAT(yaml.all()[0].location, EndsWith(":2"));
  EXPECT_EQ(read(R"({"findings": [{"rule": "DP-04", "subject": "Foo", "reason": "why"}]})").all().size(), 1u);
  EXPECT_TRUE(read("findings: []\n").all().empty());
}

TEST_F(KnownFindingsFile, ErrorsNameTheLineAndTheReason) {
  EXPECT_THAT(refusal("- DP-04\n"), EndsWith(":1: known findings: expected fields, as in name: value"));
  EXPECT_THAT(refusal("findings: DP-04\n"), EndsWith(":1: findings: expected a list"));
  EXPECT_THAT(refusal("findings:\n  - rule: DP-04\n    subject: Foo\n"),
              EndsWith(":2: finding: field reason is missing"));
  EXPECT_THAT(refusal("findings:\n  - {rule: A, subject: B, reason: ''}\n"), EndsWith(":2: reason: must not be empty"));
  EXPECT_THAT(refusal("findings:\n  - rule: A\n    subject: B\n    rule: C\n    reason: D\n"),
              EndsWith(":4: field rule is already in line 2: leave out one of them"));
  EXPECT_THAT(refusal("findings:\n  - {rule: A, subject: B, reason: C, until: D}\n"),
              EndsWith(":2: finding: no field \"until\": expected one of rule, subject, reason, expires, seldom"));
  EXPECT_THAT(refusal("findings:\n  - {rule: A, subject: B, reason: C, expires: soon}\n"),
              EndsWith(":2: expires \"soon\": expected a day such as 2027-03-31"));
  EXPECT_THAT(refusal("findings:\n  - {rule: A, subject: B, reason: C, seldom: rarely}\n"),
              EndsWith(":2: seldom \"rarely\": expected true, or no such field"));
  EXPECT_THAT(refusal("findings: [\n"), HasSubstr(path_));
  EXPECT_THROW(KnownFindings::read(folder_.path()), std::runtime_error);
}

TEST_F(KnownFindingsFile, NamesRulesThatExist) {
  const KnownFindings known = read("findings:\n  - {rule: cn-06, subject: Foo, reason: why}\n");
  EXPECT_THAT(error_message([&] {
                known.require_rules({"CN-06", "XF-01"});
              }),
              EndsWith("known.yaml:2: no rule \"cn-06\": did you mean CN-06?"));
  read("findings:\n  - {rule: CN-06, subject: Foo, reason: why}\n").require_rules({"CN-06", "XF-01"});
}

}  // namespace
}  // namespace plugfest::report
