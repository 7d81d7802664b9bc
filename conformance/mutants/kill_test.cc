// The rule that a mutant breaks catches it, unaffected rules do not, and every rule catches a mutant.
#include "conformance/mutants/kill.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "fabric/topology/graph.h"
#include "harness/testbed/library_folder.h"
#include "harness/testbed/roce.h"

namespace plugfest::mutants {
namespace {

std::string listing(const report::MutantResult& mutant) {
  std::string text = mutant.name + ":";
  for (const report::RuleResult& rule : mutant.evidence) text += fmt::format("\n  {}: {}", rule.id, rule.message);
  return text;
}

TEST(Mutants, AreCaughtByTheRulesTheyBreakOnly) {
  testbed::TestBed bed = testbed::roce_test_bed(topology::named("triangle"), false);
  KillSettings settings;
  settings.folder = testbed::library_folder() + "/mutants";
  settings.mutants = select_mutants(load_mutants(settings.folder), {});
  settings.limits.call_seconds = 3;  // shortens the mutants that hang
  std::set<std::string> killers;
  for (const report::MutantResult& mutant : kill(bed, conformance::catalogue(), settings)) {
    EXPECT_TRUE(mutant.killed) << "survived: " << listing(mutant);
    EXPECT_TRUE(mutant.caught_wrongly.empty()) << "caught by a rule that it does not break: " << listing(mutant);
    killers.insert(mutant.killed_by.begin(), mutant.killed_by.end());
  }
  for (const conformance::Rule& rule : conformance::catalogue().rules()) {
    EXPECT_EQ(killers.count(rule.id), 1u) << rule.id << " caught no mutant";
  }
}

TEST(Mutants, HaveUniqueNames) {
  std::set<std::string> names;
  for (const Mutant& mutant : load_mutants(testbed::library_folder() + "/mutants"))
    EXPECT_TRUE(names.insert(mutant.name).second) << mutant.name;
}

TEST(LoadMutants, NamesTheLibraryThatIsMissing) {
  try {
    load_mutants("/nonexistent");
    FAIL() << "accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(
        error.what(),
        "the mutants cannot be loaded: /nonexistent/libmutant-shim.so: cannot open shared object file: No such "
        "file or directory");
  }
}

TEST(SelectMutants, NamesThePatternThatMatchesNothing) {
  const std::vector<Mutant> all = {{.name = "page_a", .breaks = {"XF-01"}},
                                   {.name = "other", .breaks = {"XF-01"}},
                                   {.name = "variant", .breaks = {}}};
  EXPECT_EQ(select_mutants(all, {"page_*"}).size(), 1u);
  EXPECT_EQ(select_mutants(all, {}).size(), 2u) << "a variant is no mutant";
  try {
    select_mutants(all, {"no_such_mutant"});
    FAIL() << "accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no mutant matches 'no_such_mutant': plugfest mutants --list names them");
  }
}

}  // namespace
}  // namespace plugfest::mutants
