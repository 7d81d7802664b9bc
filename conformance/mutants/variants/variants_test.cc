// Every rule passes on every variant.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/mutants/kill.h"
#include "conformance/rules/runner.h"
#include "fabric/topology/graph.h"
#include "harness/nccl/control/rank_environment.h"
#include "harness/plugin/layout.h"
#include "harness/report/verdict.h"
#include "harness/testbed/library_folder.h"
#include "harness/testbed/roce.h"

namespace plugfest::mutants {
namespace {

class Variants : public ::testing::TestWithParam<std::string> {};

TEST_P(Variants, PassesEveryRule) {
  testbed::TestBed bed = testbed::roce_test_bed(topology::named("triangle"), false);
  conformance::RunSettings settings;
  for (const conformance::Rule& rule : conformance::catalogue().rules()) {
    if (rule.clause.needs.empty() && !rule.clause.runs_nccl && !rule.clause.thorough) settings.rules.push_back(&rule);
  }
  settings.paths = bed.paths();
  settings.hosts = bed.hosts();
  settings.api = plugin::kNewestApi;
  settings.library = testbed::library_folder() + "/mutants/libnccl-net-" + GetParam() + ".so";
  settings.injector = bed.injector();
  control::Subject subject = bed.subject(settings.library, settings.api);
  if (GetParam() == "refuses_without_gpu") nccl::add_stand_ins(subject.environment);
  control::Session session(bed.launcher(), subject);
  std::size_t passed = 0;
  for (const report::RuleResult& result : run_rules(&session, conformance::catalogue(), settings)) {
    passed += result.verdict == report::Verdict::kPass ? 1 : 0;
    EXPECT_TRUE(report::is_good(result.verdict) || result.verdict == report::Verdict::kWarn)
        << result.id << ": " << result.message;
  }
  EXPECT_GT(passed, settings.rules.size() * 3 / 4);
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const Mutant& mutant : load_mutants(testbed::library_folder() + "/mutants")) {
    if (mutant.is_variant()) names.push_back(mutant.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Net, Variants, ::testing::ValuesIn(names()), [](const auto& name) { return name.param; });

}  // namespace
}  // namespace plugfest::mutants
