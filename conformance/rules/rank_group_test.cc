// A rule with three ranks, on the mesh plugin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "conformance/rules/rule.h"
#include "conformance/rules/rule_body.h"
#include "conformance/rules/runner.h"
#include "harness/bed/nic_kind.h"
#include "harness/control/script.h"

namespace plugfest::conformance {
namespace {

// Sends a message from each of three ranks to each other one, over connections that exist at the same time.
struct SendsToAll : RuleBody {
  void run() override {
    std::vector<control::Connection> connections;
    for (std::size_t from = 0; from < 3; ++from) {
      for (std::size_t to = 0; to < 3; ++to) {
        if (from == to) continue;
        const control::Endpoint sender = endpoint(from, to), receiver = endpoint(to, from);
        expect(sender.rank.pid() == rank(from).pid(), "a rank has one process for each peer");
        connections.push_back(control::connect(sender, receiver));
        control::Rank source_rank = sender.rank, target_rank = receiver.rank;
        const control::Memory source = source_rank.allocate(1000), target = target_rank.allocate(1000);
        source_rank.fill(source, from * 3 + to);
        control::Send send(connections.back().send, connections.back().send.reg(source));
        control::Receive receive(connections.back().receive, connections.back().receive.reg(target));
        control::finish({&send, &receive});
        const control::Check check = target_rank.check(target, from * 3 + to);
        expect(check.same, check.difference);
      }
    }
  }
};

report::RuleResult result_on(const std::string& topology) {
  Catalog catalog;
  catalog.add({.id = "CN-01",
               .declaration = {.title = "a rule", .text = "It holds.", .source = "here", .ranks = 3},
               .make_body = []() -> std::unique_ptr<RuleBody> { return std::make_unique<SendsToAll>(); }});
  bed::TestBed bed = bed::roce_test_bed(topology::named(topology), false);
  const std::string library = bed::library_folder() + "/libnccl-net-mesh.so";
  control::Session session(bed.launcher(), bed.subject(library, 12));
  RunSettings settings;
  settings.rules = select_rules(catalog, {});
  settings.paths = bed.paths();
  settings.hosts = bed.hosts();
  settings.api = 12;
  return run_rules(&session, catalog, settings).at(0);
}

TEST(RankGroup, EachRankReachesEveryOtherRank) {
  for (const char* topology : {"triangle", "star:4"}) {
    const report::RuleResult result = result_on(topology);
    EXPECT_EQ(result.verdict, report::Verdict::kPass) << topology << ": " << result.message;
    EXPECT_EQ(result.path, topology == std::string("triangle") ? "a b c" : "h1 h2 h3");
  }
}

TEST(RankGroup, IsSkippedWithoutEnoughHosts) {
  const report::RuleResult result = result_on("line:3");
  EXPECT_EQ(result.verdict, report::Verdict::kSkip);
  EXPECT_EQ(result.message, "needs 3 hosts that all reach each other, as in --topology mesh:3");
}

}  // namespace
}  // namespace plugfest::conformance
