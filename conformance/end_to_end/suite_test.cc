// Known good plugins pass the EE rules. Skipped where there is no libnccl.so.2.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "conformance/rules/runner.h"
#include "fabric/topology/graph.h"
#include "harness/plugin/nccl/nccl_builtin.h"
#include "harness/report/verdict.h"
#include "harness/testbed/library_folder.h"
#include "harness/testbed/roce.h"

namespace plugfest::conformance {
namespace {

class EndToEnd : public testing::Test {
 protected:
  void SetUp() override {
    if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2: run\n    " << plugin::kFetchNccl;
    const char* given = std::getenv("SEED");
    seed_ = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("SEED=%llu\n", static_cast<unsigned long long>(seed_));
  }

  static std::vector<const Rule*> all_rules() {
    std::vector<const Rule*> rules;
    for (const Rule& rule : catalogue().rules())
      if (rule.clause.runs_nccl) rules.push_back(&rule);
    return rules;
  }

  /// `count` rules that the seed selects; with NIGHTLY=1 all.
  std::vector<const Rule*> some_rules(std::size_t count) const {
    std::vector<const Rule*> rules = all_rules();
    if (std::getenv("NIGHTLY") != nullptr) return rules;
    std::mt19937_64 random(seed_);
    std::shuffle(rules.begin(), rules.end(), random);
    rules.resize(std::min(count, rules.size()));
    return rules;
  }

  void expect_pass(const std::string& plugin, const std::string& topology,
                   const std::vector<const Rule*>& rules) const {
    testbed::TestBed bed = testbed::roce_test_bed(topology::named(topology), true);
    RunSettings settings;
    settings.rules = rules;
    settings.paths = bed.paths();
    settings.hosts = bed.hosts();
    settings.library = plugin::is_builtin(plugin) ? "" : plugin;
    settings.api = 11;
    settings.injector = bed.injector();
    settings.nccl = {.bed = &bed, .plugin = plugin, .seconds = 120};
    settings.seed = seed_;
    control::Session session(bed.launcher(), bed.subject(plugin, 11));
    for (const report::RuleResult& result : run_rules(&session, catalogue(), settings)) {
      std::string logs;
      for (const report::RankRecord& rank : result.ranks) {
        logs += fmt::format("\nrank {}:", rank.name);
        for (const std::string& line : rank.log) logs += "\n  " + line;
      }
      EXPECT_TRUE(report::is_good(result.verdict)) << plugin << ", " << result.id << ": " << result.message << logs;
      EXPECT_NE(result.verdict, report::Verdict::kSkip) << plugin << ", " << result.id << ": " << result.message;
    }
  }

  std::uint64_t seed_ = 1;
};

TEST_F(EndToEnd, TheMeshPluginPassesEveryRule) {
  expect_pass(testbed::library_folder() + "/libnccl-net-mesh.so", "triangle", all_rules());
}

TEST_F(EndToEnd, TransportsOfNcclPassRulesThatTheSeedSelects) {
  expect_pass("nccl:IB", "star:3", some_rules(2));
  expect_pass("nccl:Socket", "triangle", some_rules(2));
}

}  // namespace
}  // namespace plugfest::conformance
