// The rules that a mutant declares kill it, other rules do not, and every rule kills a mutant. Takes minutes of
// CPU time, because each mutant needs ranks of its own.
#include "conformance/mutants/kill.h"
#include "fabric/system/process.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "fabric/system/testing.h"
#include "fabric/topology/graph.h"
#include "harness/bed/nic_kind.h"
#include "harness/bed/reduction.h"
#include "harness/plugin/nccl.h"
#include "harness/report/verdict.h"

namespace plugfest::mutants {
namespace {

std::string listing(const report::MutantResult& mutant) {
  std::string text = mutant.name + ":";
  const std::set<std::string> declared(mutant.rules.begin(), mutant.rules.end());
  for (const report::RuleResult& rule : mutant.evidence)
    if (report::is_broken(rule.verdict) || declared.count(rule.id) != 0)
      text += fmt::format("\n  {}: {}\n  again: {}", rule.id, rule.message, rule.rerun);
  return text + fmt::format("\n  again: plugfest mutants --matrix -m {}", mutant.name);
}

// Runs `settings.mutants` on a separate bed. Some mutants fail only with particular timings, which a loaded machine
// may not produce, and a rule may be too slow there for a run that is not thorough: a mutant survives when it survives
// three runs, each with other random numbers, the last two thorough. A rule fails undeclared when it fails in a run
// with calls of 3 s.
void expect_killed(KillSettings settings, const char* topology = "triangle") {
  bed::TestBed bed = bed::roce_test_bed(topology::named(topology), true);
  if (bed::can_reduce(bed.graph())) bed.start_reduction();
  settings.nccl = !plugin::find_nccl().empty();
  for (int remaining = 2; !settings.mutants.empty(); --remaining, ++settings.seed, settings.limits.call_seconds = 3) {
    std::vector<std::string> again;
    for (const report::MutantResult& mutant : kill(bed, conformance::catalog(), settings)) {
      if (mutant.killed && mutant.undeclared.empty()) continue;
      const char* const fault = mutant.undeclared.empty() ? "survived" : "also fails undeclared rules";
      const bool final = mutant.undeclared.empty() ? remaining == 0 : settings.limits.call_seconds >= 3;
      if (final) ADD_FAILURE() << fault << ": " << listing(mutant);
      if (final) continue;
      std::printf("seed %llu: %s: %s\n", static_cast<unsigned long long>(settings.seed), fault,
                  listing(mutant).c_str());
      again.push_back(mutant.name);
    }
    settings.mutants.clear();
    settings.thorough = settings.coverage == Coverage::kDeclared;
    if (remaining > 0 && !again.empty()) settings.mutants = select_mutants(load_mutants(settings.folder), again);
  }
}

// All mutants for which `wanted` holds. `call_seconds`: shorter than usual for the mutants that hang.
template <typename Predicate>
KillSettings mutants_that(Predicate wanted, double call_seconds) {
  const std::string folder = default_folder();
  KillSettings settings{.mutants = select_mutants(load_mutants(folder), {}), .folder = folder};
  settings.limits.call_seconds = call_seconds;
  std::erase_if(settings.mutants, [&](const Mutant* mutant) { return !wanted(*mutant); });
  return settings;
}

// Four tests, which can run at the same time. They run 230 plugins and 12 jobs of NCCL.
TEST(KillMatrix, DeclaredRulesFailOnEachMutant) {
  const conformance::Catalog& all = conformance::catalog();
  expect_killed(
      mutants_that([&](const Mutant& mutant) { return !needs_nccl(mutant, all) && !is_thorough(mutant, all); }, 1));
}

TEST(KillMatrix, DeclaredRulesFailOnEachMutantUnderNccl) {
  expect_killed(mutants_that([](const Mutant& mutant) { return needs_nccl(mutant, conformance::catalog()); }, 3));
}

TEST(KillMatrix, DeclaredRulesFailOnEachMutantOverTwoLinks) {
  const auto wanted = [](const Mutant& mutant) { return needs_two_links(mutant, conformance::catalog()); };
  expect_killed(mutants_that(wanted, 1), "pair:links=2");
}

TEST(KillMatrix, DeclaredRulesFailOnEachMutantOfCollNetUnderNccl) {
  const auto wanted = [](const Mutant& mutant) { return needs_reduction(mutant, conformance::catalog()); };
  expect_killed(mutants_that(wanted, 3), "star:3");
}

class EveryRule : public ::testing::TestWithParam<std::size_t> {
 public:
  static constexpr std::size_t kParts = 32;
};

TEST_P(EveryRule, FailsOnTheMutantsThatDeclareItOnly) {
  PLUGFEST_LONG_TEST();
  std::size_t position = 0;
  KillSettings settings = mutants_that([&](const Mutant&) { return position++ % kParts == GetParam(); }, 1);
  settings.coverage = Coverage::kDecisive;
  settings.limits.blocked_seconds = 0.3;
  expect_killed(settings);
}

INSTANTIATE_TEST_SUITE_P(Part, EveryRule, ::testing::Range(std::size_t{0}, EveryRule::kParts));

TEST(RulesForAMutant, DependOnTheCoverage) {
  const conformance::Catalog& catalog = conformance::catalog();
  const Mutant mutant{.name = "m", .breaks = {"XF-01"}, .may_break = {"XF-*"}};
  const auto ids = [&](const Mutant& one, Coverage coverage) {
    std::set<std::string> ids;
    for (const conformance::Rule* rule : rules_for(catalog, one, coverage)) {
      EXPECT_EQ(rule->apis.interface, plugin::InterfaceKind::kNet) << rule->id;
      EXPECT_FALSE(rule->declaration.runs_nccl || rule->declaration.thorough) << rule->id;
      ids.insert(rule->id);
    }
    return ids;
  };
  const std::set<std::string> declared = {"XF-01"};
  EXPECT_EQ(ids(mutant, Coverage::kDeclared), declared);
  const std::set<std::string> decisive = ids(mutant, Coverage::kDecisive), every = ids(mutant, Coverage::kEvery);
  EXPECT_GT(decisive.size(), 100u);
  EXPECT_TRUE(decisive.contains("XF-01") && decisive.contains("CN-01") && !decisive.contains("XF-02"));
  EXPECT_TRUE(every.contains("XF-02") && every.size() > decisive.size());
  const std::vector<std::string> patterns = {"CN-*", "XF-01"};
  EXPECT_EQ(rules_for(catalog, mutant, Coverage::kDeclared, patterns).size(), 1u);
  for (const conformance::Rule* rule : rules_for(catalog, mutant, Coverage::kDecisive, patterns))
    EXPECT_TRUE(rule->id == "XF-01" || rule->group() == "CN") << rule->id;
  EXPECT_TRUE(rules_for(catalog, mutant, Coverage::kDeclared, std::vector<std::string>{"CN-01"}).empty());
  const Mutant of_profiler{.name = "p", .breaks = {"PF-01"}};
  EXPECT_FALSE(every.contains("PF-02")) << "it sends only what other rules also send";
  EXPECT_TRUE(ids(of_profiler, Coverage::kDecisive).contains("PF-02"));
  EXPECT_EQ(ids(mutant.refusing_calls(), Coverage::kEvery), declared);
}

TEST(Mutants, ExistForEveryRule) {
  std::set<std::string> broken;
  for (const Mutant& mutant : load_mutants(default_folder())) broken.insert(mutant.breaks.begin(), mutant.breaks.end());
  for (const conformance::Rule& rule : conformance::catalog().rules()) {
    if (rule.level == conformance::Level::kInfo) continue;  // it has no verdict
    EXPECT_EQ(broken.count(rule.id), 1u) << rule.id << ": no mutant breaks it";
  }
}

TEST(Mutants, HaveUniqueNamesAndALibraryEach) {
  const std::string folder = default_folder();
  std::set<std::string> names;
  for (const Mutant& mutant : load_mutants(folder)) {
    EXPECT_TRUE(names.insert(mutant.name).second) << mutant.name;
    EXPECT_TRUE(std::filesystem::exists(folder + "/libnccl-net-" + mutant.name + ".so")) << mutant.name;
  }
}

TEST(Mutants, SayWhyTheyMayBreakManyRules) {
  const std::vector<std::string> ids = conformance::catalog().ids();
  for (const Mutant& mutant : load_mutants(default_folder())) {
    const auto count = static_cast<std::size_t>(std::count_if(ids.begin(), ids.end(), [&](const std::string& id) {
      return std::any_of(mutant.may_break.begin(), mutant.may_break.end(),
                         [&](const std::string& pattern) { return fnmatch(pattern.c_str(), id.c_str(), 0) == 0; });
    }));
    EXPECT_EQ(mutant.reason.empty(), count <= Mutant::kMaxWithoutReason)
        << mutant.name << " may break " << count << " rules: .also(…).because(…) is for more than "
        << Mutant::kMaxWithoutReason;
  }
}

TEST(LoadMutants, NamesTheLibraryThatIsMissing) {
  EXPECT_EQ(
      error_message([] { load_mutants("/nonexistent"); }),
      "the mutants cannot be loaded: /nonexistent/libmutant-shim.so: cannot open shared object file: No such file "
      "or directory");
}

TEST(SelectMutants, NamesThePatternThatMatchesNothing) {
  const std::vector<Mutant> all = {{.name = "page_a", .breaks = {"XF-01"}},
                                   {.name = "other", .breaks = {"XF-01"}},
                                   {.name = "variant", .breaks = {}}};
  EXPECT_EQ(select_mutants(all, {"page_*"}).size(), 1u);
  EXPECT_EQ(select_mutants(all, {}).size(), 2u) << "a variant is not a mutant";
  EXPECT_EQ(error_message([&] { select_mutants(all, {"no_such_mutant"}); }),
            "no mutant matches 'no_such_mutant': " + program_as_typed() + " mutants --list names them");
}

}  // namespace
}  // namespace plugfest::mutants
