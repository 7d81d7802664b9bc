#include "harness/report/verdict.h"

#include <gtest/gtest.h>

#include "harness/report/results.h"

namespace plugfest::report {
namespace {

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
  EXPECT_EQ(exit_code(document), 2) << "nothing was judged";
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

TEST(ExitCode, IsOneIfTheLoaderDeviates) {
  Document document;
  document.runs = {run_with({Verdict::kPass})};
  document.loader = Loader{};
  EXPECT_EQ(exit_code(document), 0);
  document.loader->deviation = "NCCL takes no version";
  EXPECT_EQ(exit_code(document), 1);
}

TEST(ExitCode, IsZeroIfEachMutantIsCaughtByItsRuleAlone) {
  Document document;
  MutantResult mutant;
  mutant.killed = true;
  mutant.evidence = run_with({Verdict::kFail, Verdict::kPass}).rules;
  document.mutants = {mutant};
  EXPECT_EQ(exit_code(document), 0);
  document.mutants[0].caught_wrongly = {"LD-02"};
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

}  // namespace
}  // namespace plugfest::report
