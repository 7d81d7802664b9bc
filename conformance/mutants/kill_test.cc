// The rules that a mutant declares catch it, other rules do not, and every rule catches a mutant.
#include "conformance/mutants/kill.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "fabric/topology/graph.h"
#include "harness/bed/library_folder.h"
#include "harness/bed/roce.h"
#include "harness/plugin/nccl.h"
#include "harness/report/verdict.h"

namespace plugfest::mutants {
namespace {

std::string listing(const report::MutantResult& mutant) {
  std::string text = mutant.name + ":";
  for (const report::RuleResult& rule : mutant.evidence) {
    if (!report::is_good(rule.verdict))
      text += fmt::format("\n  {}: {}\n  again: {}", rule.id, rule.message, rule.rerun);
  }
  return text + fmt::format("\n  again: plugfest mutants --matrix -m {}", mutant.name);
}

/// The mutants in parts, each a test of its own: every sixteenth mutant.
constexpr std::size_t kParts = 16;
class KillMatrix : public ::testing::TestWithParam<std::size_t> {};

/// With NIGHTLY=1 every rule runs on every mutant, with the random numbers of SEED. Otherwise SEED draws two rules for
/// each mutant that must pass on it, and the random numbers of the rules are always the same, since some mutants need
/// particular ones to be found.
TEST_P(KillMatrix, RulesFailOnTheMutantsThatDeclareThemOnly) {
  bed::TestBed bed = bed::roce_test_bed(topology::named("triangle"), true);
  KillSettings settings;
  settings.nccl = !plugin::find_nccl().empty();
  settings.folder = bed::library_folder() + "/mutants";
  const std::vector<const Mutant*> all = select_mutants(load_mutants(settings.folder), {});
  for (std::size_t i = GetParam(); i < all.size(); i += kParts) settings.mutants.push_back(all[i]);
  settings.limits.call_seconds = 3;  // shortens the mutants that hang
  const bool nightly = std::getenv("NIGHTLY") != nullptr;
  const char* const given = std::getenv("SEED");
  settings.draw = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  if (nightly) {
    settings.seed = settings.draw;
    settings.others = kEveryRule;
  } else {
    settings.others = 2;
    std::erase_if(settings.mutants,
                  [](const Mutant* mutant) { return is_thorough(*mutant, conformance::catalogue()); });
  }
  std::printf("SEED=%llu\n", static_cast<unsigned long long>(settings.draw));
  // Some mutants show only with particular timings, which a loaded machine may not produce: a mutant survives when it
  // survives three times, and by day a rule catches it wrongly when it does so twice.
  std::set<std::string> caught;
  for (int remaining = 2; !settings.mutants.empty(); --remaining, ++settings.seed) {
    std::vector<std::string> again;
    for (const report::MutantResult& mutant : kill(bed, conformance::catalogue(), settings)) {
      bool repeat = !mutant.killed;
      if (repeat) {
        if (remaining == 0) ADD_FAILURE() << "survived: " << listing(mutant);
        std::printf("seed %llu: survived: %s\n", static_cast<unsigned long long>(settings.seed),
                    listing(mutant).c_str());
      }
      for (const std::string& rule : mutant.caught_wrongly) {
        const bool first = caught.insert(mutant.name + rule).second;
        if (!first || nightly) ADD_FAILURE() << "caught by a rule that it does not declare: " << listing(mutant);
        repeat = repeat || first;
      }
      if (repeat) again.push_back(mutant.name);
    }
    settings.mutants.clear();
    if (remaining > 0 && !again.empty()) settings.mutants = select_mutants(load_mutants(settings.folder), again);
  }
}

INSTANTIATE_TEST_SUITE_P(Part, KillMatrix, ::testing::Range(std::size_t{0}, kParts));

TEST(RulesFor, DrawsOthersThatTheMutantDoesNotDeclare) {
  const conformance::Catalogue& catalogue = conformance::catalogue();
  const auto ids = [&](const Mutant& mutant, std::uint64_t draw) {
    std::vector<std::string> ids;
    for (const conformance::Rule* rule :
         rules_for(catalogue, mutant, {.mutants = {}, .folder = {}, .others = 20, .draw = draw}))
      ids.push_back(rule->id);
    return ids;
  };
  const Mutant mutant{.name = "m", .breaks = {"XF-01"}, .may_break = {"XF-*"}};
  const std::vector<std::string> drawn = ids(mutant, 1);
  ASSERT_EQ(drawn.size(), 21u);
  EXPECT_EQ(drawn[0], "XF-01");
  for (std::size_t i = 1; i < drawn.size(); ++i) {
    EXPECT_EQ(drawn[i].find("XF-"), std::string::npos);
    const conformance::Clause& clause = catalogue.find(drawn[i])->clause;
    EXPECT_FALSE(clause.runs_nccl || clause.thorough) << drawn[i];
  }
  EXPECT_EQ(drawn, ids(mutant, 1));
  EXPECT_NE(drawn, ids(mutant, 2));
  EXPECT_EQ(ids(mutant.without_draw("wide"), 1), std::vector<std::string>{"XF-01"});
  EXPECT_EQ(
      rules_for(catalogue, mutant.without_draw("wide"), {.mutants = {}, .folder = {}, .others = kEveryRule}).size(),
      rules_for(catalogue, mutant, {.mutants = {}, .folder = {}, .others = kEveryRule}).size());
}

TEST(Mutants, ExistForEveryRule) {
  std::set<std::string> broken;
  for (const Mutant& mutant : load_mutants(bed::library_folder() + "/mutants")) {
    broken.insert(mutant.breaks.begin(), mutant.breaks.end());
  }
  for (const conformance::Rule& rule : conformance::catalogue().rules()) {
    if (rule.level == conformance::Level::kInfo || !rule.clause.needs.empty()) continue;  // they judge nothing
    EXPECT_EQ(broken.count(rule.id), 1u) << rule.id << ": no mutant breaks it";
  }
}

TEST(Mutants, HaveUniqueNames) {
  std::set<std::string> names;
  for (const Mutant& mutant : load_mutants(bed::library_folder() + "/mutants"))
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
