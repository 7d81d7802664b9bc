// Known good plugins pass the EE rules. Skipped without libnccl.so.2. Takes a minute of CPU time, because the
// ranks of NCCL compute its kernels on the processor.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "conformance/rules/runner.h"
#include "fabric/system/testing.h"
#include "fabric/topology/graph.h"
#include "harness/bed/nic_kind.h"
#include "harness/plugin/nccl.h"
#include "harness/report/verdict.h"

namespace plugfest::conformance {
namespace {

class EndToEnd : public testing::Test {
 protected:
  void SetUp() override {
    if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2: run\n    " << plugin::kFetchNccl;
  }

  // The rules that run NCCL and are about one interface.
  static std::vector<const Rule*> rules_of(plugin::InterfaceKind interface) {
    std::vector<const Rule*> rules;
    for (const Rule& rule : catalog().rules())
      if (rule.declaration.runs_nccl && rule.apis.interface == interface) rules.push_back(&rule);
    return rules;
  }
  // The first rule of part `part` of `parts` of the rules that test NCCL's own transports; with scripts/test --all
  // every rule of that part.
  static std::vector<const Rule*> rules_of_part(std::size_t part, std::size_t parts) {
    std::vector<const Rule*> all = rules_of(plugin::InterfaceKind::kNet), selected;
    std::erase_if(all, [](const Rule* rule) { return !rule->apis.built_ins; });
    for (std::size_t i = part; i < all.size(); i += parts) {
      selected.push_back(all[i]);
      if (!runs_long_tests()) break;
    }
    return selected;
  }

  static std::vector<report::RuleResult> results_of(const std::string& plugin, const std::string& topology,
                                                    const std::vector<const Rule*>& rules,
                                                    plugin::InterfaceKind interface) {
    bed::TestBed bed = bed::roce_test_bed(topology::named(topology), true);
    if (interface == plugin::InterfaceKind::kCollNet) bed.start_reduction();
    RunSettings settings;
    settings.interface = interface;
    settings.rules = rules;
    settings.paths = bed.paths();
    settings.hosts = bed.hosts();
    settings.library = plugin::is_builtin(plugin) ? "" : plugin;
    settings.api = 11;
    settings.injector = bed.injector();
    settings.nccl = {.bed = &bed, .plugin = plugin, .seconds = 120};
    Session session(bed.launcher(), bed.subject(plugin, 11, interface));
    return run_rules(&session, catalog(), settings);
  }

  static void expect_pass(const std::string& plugin, const std::string& topology, const std::vector<const Rule*>& rules,
                          plugin::InterfaceKind interface = plugin::InterfaceKind::kNet) {
    for (const report::RuleResult& result : results_of(plugin, topology, rules, interface)) {
      std::string logs;
      for (const report::RankRecord& rank : result.ranks) {
        logs += fmt::format("\nrank {}:", rank.name);
        for (const std::string& line : rank.log) logs += "\n  " + line;
      }
      EXPECT_TRUE(report::is_good(result.verdict)) << plugin << ", " << result.id << ": " << result.message << logs;
      EXPECT_NE(result.verdict, report::Verdict::kSkip) << plugin << ", " << result.id << ": " << result.message;
    }
  }
};

class EndToEndOfMesh : public EndToEnd, public testing::WithParamInterface<std::string> {
 public:
  static std::vector<std::string> ids() {
    std::vector<std::string> ids;
    for (const Rule* rule : rules_of(plugin::InterfaceKind::kNet)) ids.push_back(rule->id);
    return ids;
  }
};

TEST_F(EndToEnd, SharpPassesTheRulesOfCollNet) {
  expect_pass(bed::library_folder() + "/libnccl-net-sharp.so", "star:4", rules_of(plugin::InterfaceKind::kCollNet),
              plugin::InterfaceKind::kCollNet);
}

TEST_F(EndToEnd, MeshPassesTheRulesOfGin) {
  expect_pass(bed::library_folder() + "/libnccl-net-mesh.so", "triangle", rules_of(plugin::InterfaceKind::kGin),
              plugin::InterfaceKind::kGin);
}

TEST_F(EndToEnd, NcclPassesTheRulesOfGin) {
  std::vector<const Rule*> rules = rules_of(plugin::InterfaceKind::kGin);
  if (!runs_long_tests()) rules.resize(1);
  expect_pass("nccl:GIN", "star:3", rules, plugin::InterfaceKind::kGin);
}

TEST_F(EndToEnd, RulesOfGinDoNotApplyIfNcclDoesNotLoadThePluginsVersion) {
  const std::string toy = bed::library_folder() + "/mutants/libgin-toy.so";
  const auto results = results_of(toy, "pair", {catalog().find("EE-14")}, plugin::InterfaceKind::kGin);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].verdict, report::Verdict::kNotApplicable);
  EXPECT_EQ(results[0].message, "NCCL 2.28.9 loads GIN v11, and the library exports v14, v15");
}

TEST_P(EndToEndOfMesh, PassesTheRule) {
  expect_pass(bed::library_folder() + "/libnccl-net-mesh.so", "triangle", {catalog().find(GetParam())});
}

INSTANTIATE_TEST_SUITE_P(Each, EndToEndOfMesh, testing::ValuesIn(EndToEndOfMesh::ids()), [](const auto& id) {
  std::string name = id.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

constexpr std::size_t kParts = 2;
class EndToEndOfNccl : public EndToEnd, public testing::WithParamInterface<std::size_t> {};

TEST_P(EndToEndOfNccl, IbPassesRules) { expect_pass("nccl:IB", "star:3", rules_of_part(GetParam(), kParts)); }

TEST_P(EndToEndOfNccl, SocketPassesRules) { expect_pass("nccl:Socket", "triangle", rules_of_part(GetParam(), kParts)); }

INSTANTIATE_TEST_SUITE_P(Part, EndToEndOfNccl, testing::Range(std::size_t{0}, kParts));

}  // namespace
}  // namespace plugfest::conformance
