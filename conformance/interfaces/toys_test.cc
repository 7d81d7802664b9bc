// The toys pass every rule of their interface, and calls described as data reach them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
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
#include "harness/report/verdict.h"

namespace plugfest::conformance {
namespace {

using plugin::InterfaceKind;

std::string library_of(InterfaceKind kind) {
  return fmt::format("{}/mutants/lib{}-toy.so", bed::library_folder(), plugin::interface_of(kind).name);
}

struct Version {
  InterfaceKind interface;
  int api;
};

class Toys : public ::testing::TestWithParam<Version> {};

TEST_P(Toys, PassEveryRuleOfTheirInterface) {
  RunSettings settings;
  settings.interface = GetParam().interface;
  settings.api = GetParam().api;
  settings.library = library_of(settings.interface);
  settings.rules = select_rules(catalogue(), {}, {.nccl = false, .thorough = true});
  bed::TestBed bed = bed::roce_test_bed(topology::named("triangle"), false);
  settings.paths = bed.paths();
  settings.hosts = bed.hosts();
  Session session(bed.launcher(), bed.subject(settings.library, settings.api, settings.interface));
  const std::vector<report::RuleResult> results = run_rules(&session, catalogue(), settings);
  EXPECT_GE(results.size(), 3u);
  for (const report::RuleResult& result : results) {
    // The toys export no net to compare with.
    const report::Verdict expected = result.id == "DP-24" ? report::Verdict::kNotApplicable : report::Verdict::kPass;
    EXPECT_EQ(result.verdict, expected) << result.id << ": " << result.message;
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, Toys,
                         ::testing::Values(Version{InterfaceKind::kCollNet, 8}, Version{InterfaceKind::kCollNet, 12},
                                           Version{InterfaceKind::kProfiler, 4}, Version{InterfaceKind::kProfiler, 6}),
                         [](const auto& version) {
                           return fmt::format("{}V{}", plugin::interface_of(version.param.interface).name,
                                              version.param.api);
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
