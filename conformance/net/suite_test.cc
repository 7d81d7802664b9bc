// Known good plugins pass every rule: the mesh plugin in each version, and NVIDIA's transports except for known
// findings. Takes minutes of CPU time, because only whole runs find rules that a correct plugin fails.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "conformance/rules/library_check.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/runner.h"
#include "fabric/system/testing.h"
#include "fabric/topology/graph.h"
#include "harness/bed/nic_kind.h"
#include "harness/plugin/layout.h"
#include "harness/plugin/library.h"
#include "harness/plugin/nccl.h"
#include "harness/report/known_findings.h"
#include "harness/report/verdict.h"
#include "test_paths.h"

namespace plugfest::conformance {
namespace {

using report::RuleResult;
using report::Verdict;
using ::testing::ElementsAre;

constexpr std::size_t kEveryRule = SIZE_MAX;

// Runs every rule on every path of `topology`. Expects every rule to pass or to be waived by known-findings.yaml, and
// no rule with a known finding to pass. `library`: empty for a transport built into NCCL. Unless long tests run, only
// a third of the rules run, from number `first_rule` on; kEveryRule: all of them.
void expect_only_known(const std::string& plugin, const std::string& library, int api, bool out_of_band,
                       std::size_t first_rule, const std::string& topology = "triangle",
                       const std::vector<std::string>& patterns = {}) {
  bed::TestBed bed = bed::roce_test_bed(topology::named(topology), out_of_band);
  RunSettings settings;
  settings.rules = select_rules(catalog(), patterns, {});
  std::erase_if(settings.rules, [](const Rule* rule) { return rule->declaration.gpu; });
  if (first_rule != kEveryRule && !runs_long_tests())
    std::erase_if(settings.rules, [number = first_rule](const Rule*) mutable { return number++ % 3 != 0; });
  settings.paths = bed.paths();
  settings.hosts = bed.hosts();
  settings.library = library;
  settings.api = api;
  settings.injector = bed.injector();
  settings.known = report::KnownFindings::read(PLUGFEST_KNOWN_FINDINGS).about(plugin, "");
  control::Subject subject = bed.subject(plugin, api);
  bed::report_lost_peers_soon(subject.environment);
  Session session(bed.launcher(), subject);
  // A rule may miss a known bug, but not in all of three attempts.
  constexpr int kAttempts = 3;
  for (int attempt = 1; !settings.rules.empty(); ++attempt, ++settings.seed) {
    std::vector<const Rule*> passed;
    for (const RuleResult& result : run_rules(&session, catalog(), settings)) {
      // Some topologies have too few hosts for some rules.
      if (result.verdict == Verdict::kSkip &&
          result.message.find(" hosts that all reach each other") != std::string::npos) {
        EXPECT_NE(topology, "triangle") << result.id;
        continue;
      }
      // A soak that takes long on this machine, under its present load, is left to thorough runs.
      if (result.verdict == Verdict::kSkip && result.message.ends_with(": add --thorough")) continue;
      EXPECT_TRUE(report::is_good(result.verdict) || result.verdict == Verdict::kWaived)
          << result.id << ": " << result.message;
      if (result.verdict != Verdict::kPass || result.known.empty()) continue;
      EXPECT_LT(attempt, kAttempts) << result.id << ": " << result.known;
      passed.push_back(select_rules(catalog(), std::vector{result.id}).front());
    }
    if (attempt == kAttempts) break;
    settings.rules = std::move(passed);
  }
}

TEST(Catalog, EveryRuleHasACompleteText) {
  for (const Rule& rule : catalog().rules()) {
    SCOPED_TRACE(rule.id);
    EXPECT_FALSE(rule.declaration.title.empty());
    EXPECT_FALSE(rule.declaration.source.empty());
    EXPECT_TRUE(rule.declaration.text.ends_with('.')) << "text: '" << rule.declaration.text << "'";
    EXPECT_TRUE(rule.declaration.why.ends_with('.')) << "why: '" << rule.declaration.why << "'";
    EXPECT_TRUE(rule.declaration.check.ends_with('.')) << "check: '" << rule.declaration.check << "'";
  }
}

class MeshVersions : public ::testing::TestWithParam<int> {};

TEST_P(MeshVersions, PassEveryRule) {
  const std::string library = bed::library_folder() + "/libnccl-net-mesh.so";
  expect_only_known(library, library, GetParam(), false,
                    GetParam() == 12 ? kEveryRule : static_cast<std::size_t>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Net, MeshVersions, ::testing::Values(6, 7, 8, 9, 10, 11, 12),
                         [](const auto& version) { return fmt::format("V{}", version.param); });

class Topologies : public ::testing::TestWithParam<const char*> {};

TEST_P(Topologies, MeshPluginPassesEveryRule) {
  constexpr std::array kAlways = {"star:4", "ring:4", "triangle:links=2"};
  const std::string name = GetParam();
  if (std::find(kAlways.begin(), kAlways.end(), name) == kAlways.end()) PLUGFEST_LONG_TEST();
  const std::string library = bed::library_folder() + "/libnccl-net-mesh.so";
  expect_only_known(library, library, 12, false, name.size(), name);
}

INSTANTIATE_TEST_SUITE_P(Net, Topologies,
                         ::testing::Values("star:4", "ring:4", "triangle:links=2", "pair", "mesh:4", "line:3",
                                           "fat-tree:2", "fat-tree:4", "leaf-spine:2,2,2", "rail:2,4", "pair:links=2"));

TEST(ManyNics, MeshPluginUsesMoreThan16NicsOfAHost) {
  const std::string library = bed::library_folder() + "/libnccl-net-mesh.so";
  expect_only_known(library, library, 12, false, kEveryRule, "rail:2,20", {"@smoke"});
}

TEST(TwoLinks, MeshPluginMergesTheirDevicesInAnyOrder) {
  const std::string library = bed::library_folder() + "/libnccl-net-mesh.so";
  expect_only_known(library, library, 12, false, kEveryRule, "pair:links=2", {"DP-29"});
}

TEST(NvidiaSocket, PassesEveryRuleWithoutKnownFinding) {
  if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2 found";
  expect_only_known("nccl:Socket", "", 11, false, 0);
}

TEST(NvidiaIb, PassesEveryRuleWithoutKnownFinding) {
  if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2 found";
  expect_only_known("nccl:IB", "", 11, true, 1);
}

// Why NCCL's own transports are not available; empty when they are.
std::string why_no_oracle() {
  if (plugin::find_nccl().empty()) return "no libnccl.so.2 found: install NCCL or set NCCL_LIBRARY";
  try {
    dlclose(plugin::load_builtin("nccl:IB").library);
    return "";
  } catch (const plugin::LoadError& error) {
    return error.what();
  }
}

TEST(Oracle, IbTransportLoadsOnlyThisProjectsVerbs) {
  if (const std::string reason = why_no_oracle(); !reason.empty()) GTEST_SKIP() << reason;
  bed::TestBed bed = bed::roce_test_bed(topology::named("triangle"), true);
  Session session(bed.launcher(), bed.subject("nccl:IB", 0));
  Lease lease = session.lease();
  Rank rank = lease.rank("a.eth0");
  EXPECT_GT(rank.devices(), 0);
  std::vector<std::string> verbs = rank.process().libraries;
  std::erase_if(verbs, [](const std::string& file) {
    return !std::filesystem::path(file).filename().string().starts_with("libibverbs.");
  });
  EXPECT_THAT(verbs, ElementsAre(std::filesystem::canonical(bed::library_folder() + "/roce/libibverbs.so.1").string()));
}

// Properties of a 10 Gbit/s device, written in the struct of version `written` and read in the struct of `read`.
PropertiesOutcome properties(int written, int read) {
  PropertiesOutcome outcome;
  outcome.bytes.resize(plugin::api_layout(read).properties_size);
  const auto put = [&](std::string_view name, auto value) {
    for (const plugin::FieldLayout& field : plugin::api_layout(written).properties)
      if (field.name == name && field.offset + field.size <= outcome.bytes.size())
        std::memcpy(outcome.bytes.data() + field.offset, &value, sizeof value);
  };
  put("speed", 10000);
  put("port", 1);
  put("latency", 2.5F);
  put("maxComms", 65536);
  put("maxRecvs", 8);
  for (const plugin::FieldLayout& field : plugin::api_layout(read).properties)
    outcome.fields.push_back({std::string(field.name), field.offset, field.size});
  return outcome;
}

TEST(VersionHint, NamesTheVersionOfTheStructure) {
  EXPECT_EQ(version_hint(properties(8, 12), 12), "; the values belong to a v8 structure: wrong struct version?");
  EXPECT_EQ(version_hint(properties(9, 8), 8), "; the values belong to a v9 structure: wrong struct version?");
  EXPECT_EQ(version_hint(properties(6, 8), 8), "; the values belong to a v7 structure: wrong struct version?")
      << "v6 and v7 have these members at the same places";
}

TEST(VersionHint, IsEmptyForTheRightVersion) {
  for (int version = plugin::kOldestApi; version <= plugin::kNewestApi; ++version)
    EXPECT_EQ(version_hint(properties(version, version), version), "") << version;
}

TEST(VersionHint, IsEmptyForValuesOfNoVersion) {
  PropertiesOutcome garbage = properties(12, 12);
  std::memset(garbage.bytes.data(), 0x5a, garbage.bytes.size());
  EXPECT_EQ(version_hint(garbage, 12), "");
}

}  // namespace
}  // namespace plugfest::conformance
