#include "harness/report/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plugfest::report {
namespace {

using testing::ElementsAre;

Run run_with(std::initializer_list<Verdict> verdicts) {
  Run run;
  for (const Verdict verdict : verdicts) {
    RuleResult rule;
    rule.verdict = verdict;
    run.rules.push_back(rule);
  }
  return run;
}

int exit_code(std::initializer_list<Verdict> verdicts) {
  return summarize(std::vector{run_with(verdicts)}).exit_code();
}

TEST(Verdict, HasAText) {
  EXPECT_EQ(text(Verdict::kPass), "pass");
  EXPECT_EQ(text(Verdict::kNotApplicable), "n/a");
  EXPECT_EQ(text(Verdict::kMissing), "missing");
  EXPECT_EQ(text(Verdict::kWaived), "waived");
}

TEST(Verdict, ExitCodeIsZeroIfNoRuleIsBroken) {
  EXPECT_EQ(exit_code({Verdict::kPass, Verdict::kWarn, Verdict::kInfo, Verdict::kSkip, Verdict::kNotApplicable,
                       Verdict::kWaived}),
            0);
}

TEST(Verdict, ExitCodeIsOneForBrokenRules) {
  EXPECT_EQ(exit_code({Verdict::kPass, Verdict::kFail}), 1);
  EXPECT_EQ(exit_code({Verdict::kPass, Verdict::kCrash}), 1);
  EXPECT_EQ(exit_code({Verdict::kPass, Verdict::kTimeout}), 1);
}

TEST(Verdict, ExitCodeIsTwoForErrorsAndMissingVerdicts) {
  EXPECT_EQ(exit_code({Verdict::kFail, Verdict::kError}), 2);
  EXPECT_EQ(exit_code({Verdict::kPass, Verdict::kMissing}), 2);
  EXPECT_EQ(exit_code({}), 2) << "a run without verdicts must not succeed";
}

TEST(ExitCode, IsThatOfTheVerdicts) {
  Document document;
  EXPECT_EQ(exit_code(document), 2) << "nothing was tested";
  document.runs = {run_with({Verdict::kPass})};
  EXPECT_EQ(exit_code(document), 0);
  document.runs = {run_with({Verdict::kFail}), run_with({Verdict::kPass})};
  EXPECT_EQ(exit_code(document), 1);
}

TEST(ExitCode, IsThatOfTheSignalThatStoppedTheRun) {
  Document document;
  document.runs = {run_with({Verdict::kPass, Verdict::kMissing})};
  document.stop_signal = 2;
  EXPECT_EQ(exit_code(document), 130);
}

TEST(ExitCode, IsTwoIfAFaultWasNeverInjected) {
  Document document;
  document.runs = {run_with({Verdict::kPass, Verdict::kFail})};
  document.runs[0].missed_faults = {{"host b killed", "--faults", "CN-06 made no call"}};
  EXPECT_EQ(exit_code(document), 2);
}

TEST(ExitCode, IsZeroIfEachMutantIsCaughtByItsRuleAlone) {
  Document document;
  MutantResult mutant;
  mutant.killed = true;
  mutant.evidence = run_with({Verdict::kFail, Verdict::kPass}).rules;
  document.mutants = {mutant};
  EXPECT_EQ(exit_code(document), 0);
  document.mutants[0].undeclared = {"LD-02"};
  EXPECT_EQ(exit_code(document), 1);
  document.mutants[0] = mutant;
  document.mutants[0].killed = false;
  EXPECT_EQ(exit_code(document), 1);
  document.mutants[0].evidence = run_with({Verdict::kError}).rules;
  EXPECT_EQ(exit_code(document), 2);
}

TEST(Verdict, SummaryOmitsCountsOfZero) {
  const std::vector runs = {run_with({Verdict::kPass, Verdict::kPass, Verdict::kFail}), run_with({Verdict::kSkip})};
  EXPECT_EQ(summarize(runs).describe(), "2 pass, 1 fail, 1 skip");
  EXPECT_EQ(summarize({}).describe(), "no rules");
}

TEST(Verdict, FlakesAreRulesWithDifferentVerdicts) {
  std::vector<report::Run> runs = {run_with({Verdict::kPass, Verdict::kFail}),
                                   run_with({Verdict::kPass, Verdict::kPass}),
                                   run_with({Verdict::kPass, Verdict::kPass})};
  for (report::Run& run : runs) {
    run.api = 12;
    run.rules[0].id = "CN-06";
    run.rules[1].id = "CN-07";
  }
  const std::vector<Flake> flakes = find_flakes(runs);
  ASSERT_EQ(flakes.size(), 1u);
  EXPECT_EQ(flakes[0].id, "CN-07");
  EXPECT_EQ(flakes[0].verdicts.describe(), "2 pass, 1 fail");
  runs[0].api = 11;
  EXPECT_TRUE(find_flakes(runs).empty()) << "versions may differ";
}

RuleResult rule(const std::string& id, Verdict verdict, const std::string& message, Cause cause = {}) {
  RuleResult result;
  result.id = id;
  result.title = "title of " + id;
  result.verdict = verdict;
  result.message = message;
  result.cause = std::move(cause);
  return result;
}

std::vector<std::string> headlines(const std::vector<RuleResult>& rules) {
  std::vector<std::string> lines;
  for (const CauseGroup& group : group_by_cause(rules)) lines.push_back(group.headline());
  return lines;
}

TEST(Cause, CallsThatWaitAtOnePlaceAreOneGroup) {
  std::vector rules = {rule("XF-05", Verdict::kTimeout, "a", {"test", "read at p.c:56"}),
                       rule("TS-02", Verdict::kTimeout, "b", {"test", "read at p.c:56"}),
                       rule("TS-04", Verdict::kTimeout, "c", {"isend", "read at p.c:56"}),
                       rule("CN-06", Verdict::kTimeout, "d", {"connect", "poll at p.c:90"}),
                       rule("CN-07", Verdict::kPass, "")};
  rules[1].title = "test never waits";
  EXPECT_THAT(headlines(rules), ElementsAre("3 rules hang in read at p.c:56 (test); start with TS-02",
                                            "1 rule hangs in poll at p.c:90 (connect); start with CN-06"));
}

TEST(Cause, TheFirstRuleToLookAtIsAboutTheCall) {
  std::vector rules = {rule("IN-03", Verdict::kTimeout, "a", {"irecv", "read at p.c:56"}),
                       rule("XF-05", Verdict::kTimeout, "b", {"irecv", "read at p.c:56"}),
                       rule("XF-06", Verdict::kTimeout, "c", {"irecv", "read at p.c:56"})};
  rules[0].group = "init and finalize";
  rules[1].group = rules[2].group = "isend and irecv";
  EXPECT_THAT(headlines(rules), ElementsAre("3 rules hang in read at p.c:56 (irecv); start with XF-05"));
}

TEST(Cause, TheFirstRuleToLookAtForAHangInCloseIsTheFirstAboutClose) {
  std::vector rules = {rule("CN-05", Verdict::kTimeout, "a", {"closeSend", ""}),
                       rule("CL-01", Verdict::kTimeout, "b", {"closeSend", ""}),
                       rule("CL-13", Verdict::kTimeout, "c", {"closeSend", ""})};
  rules[0].title = "connect keeps no pointer to the handle";
  rules[1].title = "close needs no help from the peer";
  rules[2].title = "the last close of a device does not wait for the peer";
  EXPECT_THAT(headlines(rules), ElementsAre("3 rules hang in closeSend; start with CL-01"));
}

TEST(Cause, CallsInALoopAreOneGroupWhereverTheyWereSeen) {
  EXPECT_THAT(headlines({rule("XF-05", Verdict::kTimeout, "a", {"test", ""}),
                         rule("XF-06", Verdict::kTimeout, "b", {"test", "nanosleep at p.c:56"}),
                         rule("XF-07", Verdict::kTimeout, "c", {"test", ""})}),
              ElementsAre("3 rules hang in nanosleep at p.c:56 (test); start with XF-05"));
}

TEST(Cause, CrashesAtOnePlaceAreOneGroup) {
  EXPECT_THAT(headlines({rule("LD-08", Verdict::kCrash, "a", {"init", "p.c:10"}),
                         rule("IN-01", Verdict::kCrash, "b", {"init", "p.c:10"}),
                         rule("TH-02", Verdict::kCrash, "c", {"", ""})}),
              ElementsAre("2 rules crash in init at p.c:10; start with LD-08",
                          "1 rule crashes in a thread of the plugin; start with TH-02"));
}

TEST(Cause, EqualErrorsOfOneCallAreOneGroup) {
  EXPECT_THAT(headlines({rule("XF-05", Verdict::kFail, "rank a.eth0: test(request 0x2) returned ncclInternalError (3)"),
                         rule("XF-06", Verdict::kFail, "rank b.eth1: test of message 7 returned ncclInternalError (3)"),
                         rule("XF-07", Verdict::kFail, "rank b.eth1: test of message 7 returned ncclSystemError (2)")}),
              ElementsAre("2 rules fail: test returned ncclInternalError (3); start with XF-05",
                          "1 rule fails: test of message 7 returned ncclSystemError (2); start with XF-07"));
}

TEST(Cause, AnErrorCodeIsQuotedWithTheLastWarningOfTheRankThatReturnedIt) {
  std::vector rules = {rule("CN-04", Verdict::kFail, "rank b.eth0: connect(device 0) returned ncclSystemError (2)"),
                       rule("CN-05", Verdict::kFail, "rank b.eth0: connect(device 0) returned ncclSystemError (2)")};
  const std::vector<std::string> of_listener = {"WARN p.c:1 something else"};
  const std::vector<std::string> of_connector = {"WARN p.c:2 first", "WARN p.c:9 no route to b", "INFO p.c:10 bye"};
  for (RuleResult& rule : rules) {
    rule.ranks.push_back({.name = "a.eth0", .last_calls = {}, .log = of_listener, .output = ""});
    rule.ranks.push_back({.name = "b.eth0", .last_calls = {}, .log = of_connector, .output = ""});
  }
  EXPECT_THAT(headlines(rules), ElementsAre("2 rules fail: connect returned ncclSystemError (2); the plugin warned: "
                                            "p.c:9 no route to b; start with CN-04"));
  rules[0].ranks[1].log.clear();
  EXPECT_THAT(headlines(rules), ElementsAre("2 rules fail: connect returned ncclSystemError (2); start with CN-04"))
      << "a warning of another rank may have another reason";
}

TEST(Cause, MessagesThatDifferInNumbersAreOneGroup) {
  EXPECT_THAT(headlines({rule("XF-05", Verdict::kFail, "rank a.eth0: message 5: sizes[0] = 0, sent 1000 (tag 7)\nmore"),
                         rule("XF-06", Verdict::kFail, "rank b.eth1: message 0: sizes[1] = 0, sent 12 (tag 0)")}),
              ElementsAre("2 rules fail: message 5: sizes[0] = 0, sent 1000 (tag 7); start with XF-05"));
}

TEST(Cause, VerdictsAreNotMixed) {
  EXPECT_THAT(headlines({rule("XF-05", Verdict::kTimeout, "", {"test", ""}),
                         rule("XF-06", Verdict::kCrash, "", {"test", ""}), rule("XF-07", Verdict::kMissing, "")}),
              ElementsAre("1 rule hangs in test; start with XF-05", "1 rule crashes in test; start with XF-06"));
}

}  // namespace
}  // namespace plugfest::report
