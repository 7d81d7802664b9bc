// The suite judges plugins that are known to be good: they must pass, whatever their manner.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "conformance/rules/ground.h"
#include "conformance/rules/runner.h"
#include "fabric/topology/graph.h"
#include "harness/plugin/nccl_builtin.h"

namespace plugfest::conformance {
namespace {

using report::RuleResult;
using report::Verdict;

/// Runs every rule on a triangle.
std::vector<RuleResult> judge(const std::string& plugin, const std::string& library, int api, bool out_of_band) {
  Ground ground(topology::named("triangle"), out_of_band);
  RunSettings settings;
  for (const Rule& rule : catalogue().rules()) settings.rules.push_back(&rule);
  settings.paths = ground.paths();
  settings.library = library;
  settings.api = api;
  control::Session session(ground.launcher(), ground.subject(plugin, api), settings.limits);
  return run_rules(&session, catalogue(), settings);
}

/// Ids of the rules that did not stand, with what they said.
std::map<std::string, std::string> findings(const std::vector<RuleResult>& results) {
  std::map<std::string, std::string> found;
  for (const RuleResult& result : results) {
    const bool stands = result.verdict == Verdict::kPass || result.verdict == Verdict::kInfo ||
                        result.verdict == Verdict::kNotApplicable;
    if (!stands) found.emplace(result.id, result.message);
  }
  return found;
}

void expect_only(const std::vector<RuleResult>& results, const std::set<std::string>& known) {
  for (const auto& [id, message] : findings(results)) EXPECT_EQ(known.count(id), 1u) << id << ": " << message;
}

class MeshVersions : public ::testing::TestWithParam<int> {};

TEST_P(MeshVersions, PassEveryRule) {
  const std::string library = library_folder() + "/libnccl-net-mesh.so";
  expect_only(judge(library, library, GetParam(), false), {});
}

INSTANTIATE_TEST_SUITE_P(Net, MeshVersions, ::testing::Values(6, 7, 8, 9, 10, 11, 12),
                         [](const auto& version) { return fmt::format("V{}", version.param); });

TEST(NvidiaSocket, PassesButForWhatIsKnown) {
  if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2 here";
  // net_socket writes no vProps (DP-04, DP-17), and a stranger's silent connection blocks its accept (CN-22,
  // NVIDIA/nccl #1808).
  expect_only(judge("nccl:Socket", "", 11, false), {"DP-04", "DP-17", "CN-22"});
}

TEST(NvidiaIb, PassesButForWhatIsKnown) {
  if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2 here";
  // A stranger's silent connection blocks its accept too.
  expect_only(judge("nccl:IB", "", 11, true), {"CN-22"});
}

}  // namespace
}  // namespace plugfest::conformance
