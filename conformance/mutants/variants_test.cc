// Every rule passes on every variant.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/mutants/kill.h"
#include "conformance/rules/runner.h"
#include "fabric/topology/graph.h"
#include "harness/bed/nic_kind.h"
#include "harness/plugin/layout.h"
#include "harness/report/verdict.h"
#include "harness/traffic/nccl/rank_environment.h"

namespace plugfest::mutants {
namespace {

std::string folder() { return bed::library_folder() + "/mutants"; }

class Variants : public ::testing::TestWithParam<Mutant> {};

TEST_P(Variants, PassesEveryRule) {
  bed::TestBed bed = bed::roce_test_bed(topology::named("triangle"), false);
  conformance::RunSettings settings;
  settings.rules = conformance::select_rules(conformance::catalogue(), {}, {});
  std::erase_if(settings.rules, [](const conformance::Rule* rule) { return !rule->clause.needs.empty(); });
  settings.paths = bed.paths();
  settings.hosts = bed.hosts();
  settings.api = plugin::kNewestApi;
  settings.library = folder() + "/libnccl-net-" + GetParam().name + ".so";
  settings.injector = bed.injector();
  control::Subject subject = bed.subject(settings.library, settings.api);
  if (GetParam().emulate_gpu) nccl::add_stand_ins(subject.environment);
  control::Session session(bed.launcher(), subject);
  std::size_t passed = 0;
  for (const report::RuleResult& result : run_rules(&session, conformance::catalogue(), settings)) {
    passed += result.verdict == report::Verdict::kPass ? 1 : 0;
    EXPECT_TRUE(report::is_good(result.verdict) || result.verdict == report::Verdict::kWarn)
        << result.id << ": " << result.message;
  }
  EXPECT_GT(passed, settings.rules.size() * 3 / 4);
}

std::vector<Mutant> variants() {
  std::vector<Mutant> variants = load_mutants(folder());
  std::erase_if(variants, [](const Mutant& mutant) { return !mutant.is_variant(); });
  return variants;
}

INSTANTIATE_TEST_SUITE_P(Net, Variants, ::testing::ValuesIn(variants()),
                         [](const auto& variant) { return variant.param.name; });

}  // namespace
}  // namespace plugfest::mutants
