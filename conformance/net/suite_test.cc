// Known good plugins pass every rule: the mesh plugin in each version, and NVIDIA's transports but for known findings.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "conformance/rules/runner.h"
#include "conformance/rules/select.h"
#include "fabric/topology/graph.h"
#include "harness/bed/library_folder.h"
#include "harness/bed/roce.h"
#include "harness/plugin/nccl.h"
#include "harness/report/baseline.h"
#include "harness/report/verdict.h"
#include "test_paths.h"

namespace plugfest::conformance {
namespace {

using report::RuleResult;
using report::Verdict;

/// Runs every rule on every path of `topology`. Expects every rule to pass or to be waived by known-findings.yaml, and
/// no rule with a known finding to pass. `library`: empty for a transport built into NCCL.
void expect_only_known(const std::string& plugin, const std::string& library, int api, bool out_of_band,
                       const std::string& topology = "triangle", const std::vector<std::string>& patterns = {}) {
  bed::TestBed bed = bed::roce_test_bed(topology::named(topology), out_of_band);
  RunSettings settings;
  for (const Rule* const rule : select_rules(catalogue(), patterns)) {
    const Clause& clause = rule->clause;
    if (clause.needs.empty() && !clause.runs_nccl && !clause.thorough) settings.rules.push_back(rule);
  }
  settings.paths = bed.paths();
  settings.hosts = bed.hosts();
  settings.library = library;
  settings.api = api;
  settings.injector = bed.injector();
  settings.known = report::KnownFindings::read(PLUGFEST_KNOWN_FINDINGS).about(plugin, "");
  control::Session session(bed.launcher(), bed.subject(plugin, api));
  // A rule may miss a known fault, but not in each of three attempts.
  constexpr int kAttempts = 3;
  for (int attempt = 1; !settings.rules.empty(); ++attempt, ++settings.seed) {
    std::vector<const Rule*> passed;
    for (const RuleResult& result : run_rules(&session, catalogue(), settings)) {
      // Some topologies have too few hosts for some rules.
      if (result.verdict == Verdict::kSkip &&
          result.message.find(" hosts that all reach each other") != std::string::npos) {
        EXPECT_NE(topology, "triangle") << result.id;
        continue;
      }
      EXPECT_TRUE(report::is_good(result.verdict) || result.verdict == Verdict::kWaived)
          << result.id << ": " << result.message;
      if (result.verdict != Verdict::kPass || result.known.empty()) continue;
      EXPECT_LT(attempt, kAttempts) << result.id << ": " << result.known;
      passed.push_back(select_rules(catalogue(), std::vector{result.id}).front());
    }
    if (attempt == kAttempts) break;
    settings.rules = std::move(passed);
  }
}

TEST(Catalogue, EveryRuleHasACompleteText) {
  for (const Rule& rule : catalogue().rules()) {
    SCOPED_TRACE(rule.id);
    EXPECT_FALSE(rule.clause.title.empty());
    EXPECT_FALSE(rule.clause.source.empty());
    EXPECT_TRUE(rule.clause.text.ends_with('.')) << "text: '" << rule.clause.text << "'";
    EXPECT_TRUE(rule.clause.why.ends_with('.')) << "why: '" << rule.clause.why << "'";
    // A rule that never runs checks nothing.
    const bool runs = rule.clause.needs.empty();
    EXPECT_EQ(rule.clause.check.ends_with('.'), runs) << "check: '" << rule.clause.check << "'";
  }
}

class MeshVersions : public ::testing::TestWithParam<int> {};

TEST_P(MeshVersions, PassEveryRule) {
  const std::string library = bed::library_folder() + "/libnccl-net-mesh.so";
  expect_only_known(library, library, GetParam(), false);
}

INSTANTIATE_TEST_SUITE_P(Net, MeshVersions, ::testing::Values(6, 7, 8, 9, 10, 11, 12),
                         [](const auto& version) { return fmt::format("V{}", version.param); });

TEST(Topologies, MeshPluginPassesEveryRuleOnRandomTopologies) {
  std::vector<std::string> all = {"pair",     "mesh:4",       "ring:4",          "line:3",
                                  "star:4",   "fat-tree:2",   "fat-tree:4",      "leaf-spine:2,2,2",
                                  "rail:2,4", "pair:links=2", "triangle:links=2"};
  constexpr std::size_t kSelected = 3;  // per run, to limit its time
  const char* given = std::getenv("SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device{}();
  std::printf("SEED=%u\n", seed);
  std::mt19937 random(seed);
  std::shuffle(all.begin(), all.end(), random);
  const std::string library = bed::library_folder() + "/libnccl-net-mesh.so";
  for (std::size_t i = 0; i < kSelected; ++i) {
    SCOPED_TRACE(all[i]);
    expect_only_known(library, library, 12, false, all[i]);
  }
}

TEST(Topologies, MeshPluginUsesMoreThan16NicsOfAHost) {
  const std::string library = bed::library_folder() + "/libnccl-net-mesh.so";
  expect_only_known(library, library, 12, false, "rail:2,20", {"@smoke"});
}

TEST(NvidiaSocket, PassesEveryRuleWithoutKnownFinding) {
  if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2 found";
  expect_only_known("nccl:Socket", "", 11, false);
}

TEST(NvidiaIb, PassesEveryRuleWithoutKnownFinding) {
  if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2 found";
  expect_only_known("nccl:IB", "", 11, true);
}

}  // namespace
}  // namespace plugfest::conformance
