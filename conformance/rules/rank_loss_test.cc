// Ranks that end while they execute no call, ranks that a rule freezes, and plugins that no rank can load.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "conformance/rules/rule.h"
#include "conformance/rules/rule_body.h"
#include "conformance/rules/runner.h"
#include "harness/control/launcher.h"
#include "harness/control/session.h"
#include "harness/report/verdict.h"

namespace plugfest::conformance {
namespace {

using report::RuleResult;
using report::Verdict;

// Kills its rank directly, not through the harness, and makes no call in it afterwards.
struct LosesItsRank : RuleBody {
  void run() override {
    const pid_t pid = near_rank({.state = control::RankState::kBare}).pid();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    siginfo_t info{};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  }
};

// Kills its rank through the harness.
struct KillsItsRank : RuleBody {
  void run() override { near_rank({.state = control::RankState::kBare}).kill(); }
};

template <typename Body>
Rule rule(const std::string& id) {
  return {.id = id,
          .declaration = {.title = "a rule", .text = "It holds.", .source = "here"},
          .make_body = []() -> std::unique_ptr<RuleBody> { return std::make_unique<Body>(); }};
}

// `in_order`: rules that run alone do not follow all others, as with a user's faults.
std::vector<RuleResult> results_of(const Catalog& catalog, bool in_order = false) {
  control::PlainLauncher launcher;
  control::Session session(launcher, {.plugin = "none: nothing loads it", .api = 12, .environment = {}});
  RunSettings settings;
  settings.rules = select_rules(catalog, {});
  settings.paths = {{"a.eth0", "b.eth0"}, {"a.eth1", "c.eth0"}};
  settings.library = "/lib/libnccl-net-x.so";
  settings.api = 12;
  if (in_order) settings.runs_alone = [](const Rule&) { return false; };
  return run_rules(&session, catalog, settings);
}

template <typename Body>
RuleResult result_of() {
  Catalog catalog;
  catalog.add(rule<Body>("FL-01"));
  return results_of(catalog).at(0);
}

// The message of a rule whose rank was lost.
constexpr const char* kLost =
    "rank a.eth0: the process was ended by SIGKILL, by the kernel (out of memory: see dmesg), the plugin or another "
    "process";

TEST(RankLoss, ARankThatEndsBetweenCallsIsACrash) {
  const RuleResult result = result_of<LosesItsRank>();
  EXPECT_EQ(result.verdict, Verdict::kCrash);
  EXPECT_EQ(result.message, kLost);
}

TEST(RankLoss, ARankThatTheRuleKillsIsNoCrash) { EXPECT_EQ(result_of<KillsItsRank>().verdict, Verdict::kPass); }

// Loses a rank in a probe, and then uses the rank of the rule itself.
struct LosesARankInAProbe : RuleBody {
  void run() override {
    control::Rank usual = near_rank({.state = control::RankState::kBare});
    probe([&] {
      control::Rank other = near_rank({.state = control::RankState::kBare});
      ASSERT_NE(other.pid(), usual.pid());
      ASSERT_EQ(::kill(other.pid(), SIGKILL), 0);
      other.process();
    });
    EXPECT_EQ(near_rank().pid(), usual.pid());
    usual.process();
  }
};

TEST(RankLoss, ARankThatEndsInAProbeIsAWeaknessWithItsEvidence) {
  const RuleResult result = result_of<LosesARankInAProbe>();
  EXPECT_EQ(result.verdict, Verdict::kWarn);
  EXPECT_EQ(result.message, kLost);
  std::vector<std::string> ranks;
  for (const report::RankRecord& rank : result.ranks) ranks.push_back(rank.name);
  EXPECT_THAT(ranks, ::testing::UnorderedElementsAre("a.eth0", "a.eth0 (new)"));
}

struct IsBroken : RuleBody {
  void run() override { broken("expected 1, got 2"); }
};

struct NeedsNoRank : RuleBody {
  void run() override {}
};

TEST(RankLoss, NoRuleGetsARankIfThePluginCannotBeLoaded) {
  Rule loads = rule<IsBroken>("LD-03");
  loads.declaration.loads_plugin = true;
  Catalog catalog;
  catalog.add(rule<NeedsNoRank>("LD-02"));
  catalog.add(loads);
  catalog.add(rule<KillsItsRank>("LD-10"));
  std::vector<std::string> verdicts;
  for (const RuleResult& result : results_of(catalog))
    verdicts.push_back(fmt::format("{} {}", report::text(result.verdict), result.message));
  EXPECT_THAT(verdicts, ::testing::ElementsAre("pass ", "fail expected 1, got 2",
                                               "skip the plugin cannot be used: expected 1, got 2"));
}

// Freezes its rank and records how many other rules run then.
struct FreezesItsRank : RuleBody {
  static inline std::atomic<int> max_beside = 0;
  void run() override {
    control::Rank rank = near_rank({.state = control::RankState::kBare});
    rank.freeze();
    for (int i = 0; i < 100; ++i) {
      max_beside = std::max(max_beside.load(), running.load());
      std::this_thread::yield();
    }
    rank.thaw();
  }
  static inline std::atomic<int> running = 0;
};

struct RunsBeside : RuleBody {
  void run() override {
    ++FreezesItsRank::running;
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    --FreezesItsRank::running;
  }
};

TEST(RankLoss, NothingRunsBesideARuleThatFreezesARank) {
  Catalog catalog;
  for (int i = 1; i <= 40; ++i) {
    const std::string id = fmt::format("FL-{:02}", i);
    Rule one = i % 7 == 0 ? rule<FreezesItsRank>(id) : rule<RunsBeside>(id);
    one.declaration.alone = i % 7 == 0;
    catalog.add(std::move(one));
  }
  results_of(catalog, true);
  EXPECT_EQ(FreezesItsRank::max_beside, 0);
}

}  // namespace
}  // namespace plugfest::conformance
