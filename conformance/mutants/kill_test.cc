// The rules that a mutant declares catch it, other rules do not, and every rule catches a mutant.
#include "conformance/mutants/kill.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "fabric/topology/graph.h"
#include "harness/plugin/nccl/nccl_builtin.h"
#include "harness/report/verdict.h"
#include "harness/testbed/library_folder.h"
#include "harness/testbed/roce.h"

namespace plugfest::mutants {
namespace {

std::string listing(const report::MutantResult& mutant) {
  std::string text = mutant.name + ":";
  for (const report::RuleResult& rule : mutant.evidence) {
    if (!report::is_good(rule.verdict)) text += fmt::format("\n  {}: {}", rule.id, rule.message);
  }
  return text + fmt::format("\n  again: plugfest mutants --matrix -m {}", mutant.name);
}

/// The mutants in parts, each a test of its own: every sixteenth mutant.
constexpr std::size_t kParts = 16;
class KillMatrix : public ::testing::TestWithParam<std::size_t> {};

/// With NIGHTLY=1 every rule runs on every mutant, with the random numbers of SEED. Otherwise the random numbers are
/// always the same, since some mutants need particular ones to be found.
TEST_P(KillMatrix, RulesFailOnTheMutantsThatDeclareThemOnly) {
  testbed::TestBed bed = testbed::roce_test_bed(topology::named("triangle"), true);
  KillSettings settings;
  settings.nccl = !plugin::find_nccl().empty();
  settings.folder = testbed::library_folder() + "/mutants";
  const std::vector<const Mutant*> all = select_mutants(load_mutants(settings.folder), {});
  for (std::size_t i = GetParam(); i < all.size(); i += kParts) settings.mutants.push_back(all[i]);
  settings.limits.call_seconds = 3;  // shortens the mutants that hang
  const bool nightly = std::getenv("NIGHTLY") != nullptr;
  const char* const given = std::getenv("SEED");
  settings.seed = nightly && given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  settings.others = nightly ? kEveryRule : 0;
  if (!nightly) {
    std::erase_if(settings.mutants,
                  [](const Mutant* mutant) { return is_thorough(*mutant, conformance::catalogue()); });
  }
  std::printf("SEED=%llu\n", static_cast<unsigned long long>(settings.seed));
  // Some mutants show only with particular timings, which a loaded machine may not produce: a mutant survives when it
  // survives three times.
  for (int remaining = 2; !settings.mutants.empty(); --remaining, ++settings.seed) {
    std::vector<std::string> survivors;
    for (const report::MutantResult& mutant : kill(bed, conformance::catalogue(), settings)) {
      EXPECT_TRUE(mutant.caught_wrongly.empty()) << "caught by a rule that it does not declare: " << listing(mutant);
      if (mutant.killed) continue;
      if (remaining == 0) ADD_FAILURE() << "survived: " << listing(mutant);
      std::printf("seed %llu: survived: %s\n", static_cast<unsigned long long>(settings.seed), listing(mutant).c_str());
      survivors.push_back(mutant.name);
    }
    settings.mutants.clear();
    if (remaining > 0 && !survivors.empty())
      settings.mutants = select_mutants(load_mutants(settings.folder), survivors);
  }
}

INSTANTIATE_TEST_SUITE_P(Part, KillMatrix, ::testing::Range(std::size_t{0}, kParts));

TEST(Mutants, ExistForEveryRule) {
  std::set<std::string> broken;
  for (const Mutant& mutant : load_mutants(testbed::library_folder() + "/mutants")) {
    broken.insert(mutant.breaks.begin(), mutant.breaks.end());
  }
  for (const conformance::Rule& rule : conformance::catalogue().rules()) {
    if (rule.level == conformance::Level::kInfo || !rule.clause.needs.empty()) continue;  // they judge nothing
    EXPECT_EQ(broken.count(rule.id), 1u) << rule.id << ": no mutant breaks it";
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
