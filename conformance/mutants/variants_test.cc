// Every rule passes on every variant, except for the warnings that the variant declares: a third of the rules on each,
// with PLUGFEST_TEST_ALL all.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "conformance/mutants/kill.h"
#include "conformance/rules/runner.h"
#include "fabric/system/testing.h"
#include "fabric/topology/graph.h"
#include "harness/bed/nic_kind.h"
#include "harness/plugin/layout.h"
#include "harness/report/verdict.h"

namespace plugfest::mutants {
namespace {

std::vector<Mutant> variants() {
  std::vector<Mutant> variants = load_mutants(default_folder());
  std::erase_if(variants, [](const Mutant& mutant) { return !mutant.is_variant(); });
  return variants;
}

// The parameter is the number of the variant.
class Variants : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Variants, PassEveryRule) {
  const Mutant variant = variants()[GetParam()];
  bed::TestBed bed = bed::roce_test_bed(topology::named("triangle"), false);
  conformance::RunSettings settings;
  settings.rules = conformance::select_rules(conformance::catalog(), {}, {});
  const bool is_net = variant.interface == plugin::InterfaceKind::kNet;
  std::erase_if(settings.rules, [&](const conformance::Rule* rule) { return !rule->apis.is_about(variant.interface); });
  if (is_net && !runs_long_tests()) {
    std::size_t number = GetParam();
    std::erase_if(settings.rules, [&](const conformance::Rule*) { return number++ % 3 != 0; });
  }
  settings.paths = bed.paths();
  settings.hosts = bed.hosts();
  settings.interface = variant.interface;
  settings.api = variant.api != 0 ? variant.api : plugin::interface_of(variant.interface).newest;
  settings.library = default_folder() + "/libnccl-net-" + variant.name + ".so";
  settings.injector = bed.injector();
  control::Subject subject = bed.subject(settings.library, settings.api, variant.interface);
  bed::report_lost_peers_soon(subject.environment);
  settings.gpu = variant.emulate_gpu;
  if (variant.emulate_gpu) bed::search_first_in("nccl", subject.environment);
  control::Session session(bed.launcher(), subject);
  std::size_t passed = 0;
  for (const report::RuleResult& result : run_rules(&session, conformance::catalog(), settings)) {
    passed += result.verdict == report::Verdict::kPass ? 1 : 0;
    const bool warns =
        result.verdict == report::Verdict::kWarn &&
        std::find(variant.may_break.begin(), variant.may_break.end(), result.id) != variant.may_break.end();
    EXPECT_TRUE(report::is_good(result.verdict) || warns || result.verdict == report::Verdict::kSkip)
        << result.id << ": " << result.message;
    EXPECT_EQ(result.cause.call, "") << result.id << " hangs or crashes: " << result.message;
  }
  const std::size_t least = is_net ? settings.rules.size() * 3 / 4 : 0;
  EXPECT_GE(passed, least);
}

INSTANTIATE_TEST_SUITE_P(Net, Variants, ::testing::Range(std::size_t{0}, variants().size()),
                         [](const auto& number) { return variants()[number.param].name; });

}  // namespace
}  // namespace plugfest::mutants
