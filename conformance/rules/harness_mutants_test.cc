// Runs the tests of verdicts against broken harnesses. The test that covers the broken function must fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "fabric/system/testing.h"
#include "test_paths.h"

namespace {

using ::testing::HasSubstr;

// Runs the tests of verdicts with one harness mutant; "": without a mutant.
plugfest::Finished run_tests_of(const std::string& mutant) {
  return plugfest::run_shell("HARNESS_MUTANT=" + mutant + " '" PLUGFEST_MUTATED_HARNESS "' --gtest_color=no");
}

struct HarnessMutant {
  const char* name;
  const char* caught_by;
};

void PrintTo(const HarnessMutant& mutant, std::ostream* out) { *out << mutant.name; }

TEST(Harness, PassesItsTestsWithoutAMutant) {
  const plugfest::Finished ran = run_tests_of("");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("[  PASSED  ]"));
}

class HarnessMutants : public ::testing::TestWithParam<HarnessMutant> {};

TEST_P(HarnessMutants, FailTheirTest) {
  const plugfest::Finished ran = run_tests_of(GetParam().name);
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr(std::string("[  FAILED  ] ") + GetParam().caught_by + "\n"));
}

INSTANTIATE_TEST_SUITE_P(
    Verdicts, HarnessMutants,
    ::testing::Values(HarnessMutant{"drops_the_last_verdict", "Runner.ResultsAreInContractOrderAndReportedOnce"},
                      HarnessMutant{"drops_missing_verdicts", "Runner.RulesThatDidNotRunAreMissing"},
                      HarnessMutant{"forgets_the_verdict", "Verdicts.ARuleThatReturnsPasses"},
                      HarnessMutant{"loses_a_rank", "RankLoss.ARankThatEndsBetweenCallsIsACrash"},
                      HarnessMutant{"passes_after_a_crash", "Verdicts.ACrashIsACrash"},
                      HarnessMutant{"passes_after_a_hang", "Verdicts.AHungCallIsATimeoutWithItsStack"},
                      HarnessMutant{"exits_with_0_after_a_crash", "Verdict.ExitCodeIsOneForBrokenRules"},
                      HarnessMutant{"exits_with_0_despite_missing_verdicts",
                                    "Verdict.ExitCodeIsTwoForErrorsAndMissingVerdicts"}),
    [](const auto& mutant) { return std::string(mutant.param.name); });

}  // namespace
