// The toys, and the mesh plugin and NCCL itself as GIN and RMA, pass every rule of their interface, and calls described
// as data reach them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/rules/rule.h"
#include "conformance/rules/runner.h"
#include "fabric/topology/graph.h"
#include "harness/bed/nic_kind.h"
#include "harness/control/call.h"
#include "harness/control/launcher.h"
#include "harness/control/session.h"
#include "harness/plugin/nccl.h"
#include "harness/report/verdict.h"

namespace plugfest::conformance {
namespace {

using plugin::InterfaceKind;

// GIN from v14 on has no data calls, and the mesh plugin does not export it.
bool has_no_data(InterfaceKind kind, int api) { return kind == InterfaceKind::kGin && api >= 14; }

std::string library_of(InterfaceKind kind, int api = 0) {
  if (!has_no_data(kind, api) && (kind == InterfaceKind::kGin || kind == InterfaceKind::kRma))
    return bed::library_folder() + "/libnccl-net-mesh.so";
  return fmt::format("{}/mutants/lib{}-toy.so", bed::library_folder(), plugin::interface_of(kind).name);
}

struct Version {
  InterfaceKind interface;
  int api;
  const char* topology = "triangle";
  const char* built_in = nullptr;
};

class Plugins : public ::testing::TestWithParam<Version> {};

TEST_P(Plugins, PassEveryRuleOfTheirInterface) {
  RunSettings settings;
  settings.interface = GetParam().interface;
  settings.api = GetParam().api;
  const char* const built_in = GetParam().built_in;
  if (built_in != nullptr && plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2 found";
  if (built_in == nullptr) settings.library = library_of(settings.interface, settings.api);
  settings.rules = select_rules(catalog(), {}, {.nccl = false, .thorough = true});
  bed::TestBed bed = bed::roce_test_bed(topology::named(GetParam().topology), built_in != nullptr);
  settings.paths = bed.paths();
  settings.hosts = bed.hosts();
  settings.injector = bed.injector();
  control::Subject subject =
      bed.subject(built_in != nullptr ? built_in : settings.library, settings.api, settings.interface);
  bed::report_lost_peers_soon(subject.environment);
  Session session(bed.launcher(), subject);
  const std::vector<report::RuleResult> results = run_rules(&session, catalog(), settings);
  EXPECT_GE(results.size(), 3u);
  const std::set<std::string> kSetUp = {"GI-01", "GI-16", "GI-21", "GI-36"};
  for (const report::RuleResult& result : results) {
    // The toys export no net to compare with, and do not support GPU memory. The net of the mesh plugin has opened the
    // devices when GIN and RMA start, so that their init makes no call that GI-33 could let fail.
    const Rule& rule = *catalog().find(result.id);
    const bool applies = result.id != "DP-24" && result.id != "CO-14" &&
                         (result.id != "GI-33" || built_in != nullptr) && rule.apis.contains(GetParam().api) &&
                         (built_in == nullptr || rule.apis.built_ins) &&
                         (!has_no_data(GetParam().interface, GetParam().api) || kSetUp.contains(result.id)) &&
                         !(result.id == "GI-02" && GetParam().api == 12);  // NCCL passes the context of init
    // NCCL's own GIN checks no offsets. conformance/known-findings.yaml says why GI-33 does not hold.
    const bool warns = built_in != nullptr && (result.id == "GI-27" || result.id == "GI-33");
    EXPECT_EQ(result.verdict, !applies ? report::Verdict::kNotApplicable
                              : warns  ? report::Verdict::kWarn
                                       : report::Verdict::kPass)
        << result.id << ": " << result.message;
  }
}

using enum InterfaceKind;
INSTANTIATE_TEST_SUITE_P(Versions, Plugins,
                         ::testing::Values(Version{kCollNet, 8}, Version{kCollNet, 12}, Version{kProfiler, 1},
                                           Version{kProfiler, 2}, Version{kProfiler, 3}, Version{kProfiler, 4},
                                           Version{kProfiler, 5}, Version{kProfiler, 6}, Version{kProfiler, 7},
                                           Version{kEnv, 1}, Version{kEnv, 2}, Version{kTuner, 2}, Version{kTuner, 4},
                                           Version{kTuner, 6}, Version{kGin, 11}, Version{kGin, 12}, Version{kGin, 13},
                                           Version{kGin, 14}, Version{kGin, 15}, Version{kRma, 13}, Version{kRma, 14},
                                           Version{kRma, 15}, Version{kRma, 16}, Version{kRma, 16, "star:4"},
                                           Version{kRma, 16, "triangle:links=2"},
                                           Version{kGin, 11, "star:3", "nccl:GIN"}),
                         [](const auto& version) {
                           std::string name = fmt::format(
                               "{}V{}_{}{}", plugin::interface_of(version.param.interface).name, version.param.api,
                               version.param.topology, version.param.built_in != nullptr ? "_of_NCCL" : "");
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

class Functions : public CallObserver {
 public:
  void on_call(const std::string&, const CallRecord& call) override {
    names.push_back(call.call.substr(0, call.call.find('(')));
  }
  std::vector<std::string> names;
};

class CollNetCalls : public ::testing::TestWithParam<int> {
 protected:
  Functions functions_;
  PlainLauncher launcher_;
  Session session_{
      launcher_,
      {.plugin = library_of(InterfaceKind::kCollNet), .api = GetParam(), .interface = InterfaceKind::kCollNet},
      {},
      &functions_};
  Lease lease_ = session_.lease();
  Rank rank_ = lease_.rank("a.eth0");
};

TEST_P(CollNetCalls, ReduceOverOneRank) {
  const CallOutcome listening = rank_.call("listen", {{"dev", 0}});
  const CallOutcome connected = rank_.call("connect", {{"handles", listening.bytes("handle")}, {"nranks", 1}});
  EXPECT_EQ(connected.call.substr(0, 32), "rank a.eth0: connect(nranks 1, r");
  Memory memory = rank_.allocate(2000);
  rank_.fill(Slice(memory).sub(0, 1000), 7);
  const std::uint64_t mhandle =
      rank_.call("regMr", {{"data", Slice(memory).address}, {"size", 2000}, {"type", 1}}).pointer("*mhandle");
  const CallOutcome posted = rank_.call("iallreduce", {{"sendData", Slice(memory).address},
                                                       {"recvData", Slice(memory).address + 1000},
                                                       {"count", 250},
                                                       {"dataType", 7},
                                                       {"sendMhandle", mhandle},
                                                       {"recvMhandle", mhandle}});
  const CallOutcome tested = rank_.call("test", {{"request", posted.pointer("*request")}});
  EXPECT_EQ(tested.integer("*done"), 1);
  EXPECT_EQ(tested.integer("*size"), 1000);
  EXPECT_TRUE(rank_.check(Slice(memory).sub(1000, 1000), 7));
  // The rank closes open objects in reverse order and serves the next rule.
  const pid_t pid = rank_.pid();
  EXPECT_THAT(lease_.release(true), ::testing::IsEmpty());
  EXPECT_EQ(session_.lease().rank("a.eth0").pid(), pid);
}

TEST_P(CollNetCalls, ACommunicatorOutlivesItsListener) {
  const CallOutcome listening = rank_.call("listen", {{"dev", 0}});
  rank_.call("connect", {{"handles", listening.bytes("handle")}, {"nranks", 1}});
  rank_.call("closeListen");
  rank_.call("regMr", {{"data", Slice(rank_.allocate(100)).address}, {"size", 100}, {"type", 1}});
  functions_.names.clear();
  EXPECT_THAT(lease_.release(true), ::testing::IsEmpty());
  EXPECT_THAT(functions_.names, ::testing::ElementsAre("deregMr", "closeColl"));
}

TEST_P(CollNetCalls, AFailureIsTheCodeOfThePlugin) {
  rank_.call("listen", {{"dev", 0}});
  const CallOutcome refused = rank_.try_call("connect", {{"handles", std::vector<std::byte>(256)}, {"nranks", 2}});
  EXPECT_EQ(refused.code, kRemoteError);
  EXPECT_TRUE(refused.untouched("*collComm"));
  EXPECT_THROW(rank_.call("listen", {{"dev", 5}}), CallFailed);
}

TEST_P(CollNetCalls, AMisspeltParameterIsAnError) {
  EXPECT_THROW(rank_.call("listen", {{"device", 0}}), std::logic_error);
  EXPECT_THROW(rank_.call("isend"), std::logic_error);
}

TEST_P(CollNetCalls, AFunctionThatIsNullIsNotCalled) {
  EXPECT_FALSE(rank_.has_function("regMrDmaBuf"));
  EXPECT_EQ(rank_.try_call("regMrDmaBuf").start_ns, 0);
}

INSTANTIATE_TEST_SUITE_P(Versions, CollNetCalls, ::testing::Values(8, 12),
                         [](const auto& api) { return fmt::format("V{}", api.param); });

}  // namespace
}  // namespace plugfest::conformance
