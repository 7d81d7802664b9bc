// Start and end of faults, and reasons for faults that never began.
#include "harness/faults/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

#include "fabric/system/testing.h"

namespace plugfest::faults {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class NoLauncher : public control::Launcher {
  pid_t launch(const control::LaunchRequest&) override { throw std::logic_error("no ranks"); }
};

class ScheduleTest : public testing::Test {
 protected:
  // An entry that takes the link a-b down.
  Entry down(std::optional<Step> on = {}) const {
    Entry entry;
    entry.fault = {.kind = Kind::kDown, .interfaces = find_link(fabric_.graph(), "a-b"), .text = "link a-b down"};
    entry.on = std::move(on);
    entry.source = "f.yaml:2";
    return entry;
  }
  // Whether IFF_UP is unset. The operational state changes later.
  bool is_down() {
    constexpr int kUp = 1;
    return (std::stoi(fabric_.run("a", {"cat", "/sys/class/net/eth0/flags"}).output, nullptr, 16) & kUp) == 0;
  }

  // Hosts with the folders of their NICs.
  static netns::Options options() {
    netns::Options options;
    options.prepare_host = [](const topology::Host& host) {
      for (const topology::Interface& interface : host.interfaces)
        std::filesystem::create_directory("/sys/class/infiniband/roce_" + interface.name);
    };
    return options;
  }

  netns::Fabric fabric_{topology::named("triangle"), options()};
  NoLauncher launcher_;
  RanksByHost processes_{launcher_};
  Injector injector_{fabric_, processes_};
  Script script_;
};

TEST_F(ScheduleTest, KeepsFaultsWithoutATimeForTheWholeRun) {
  script_.entries = {down()};
  Schedule schedule(script_, injector_, nullptr);
  schedule.begin_run();
  EXPECT_TRUE(is_down());
  schedule.end_run();
  EXPECT_FALSE(is_down());
  ASSERT_THAT(schedule.records(), SizeIs(1));
  EXPECT_EQ(schedule.records()[0].fault, "link a-b down");
  EXPECT_GT(schedule.records()[0].end, schedule.records()[0].start);
  EXPECT_THAT(schedule.missed(), IsEmpty());
}

TEST_F(ScheduleTest, BeginsBeforeTheNthCallAndEndsBeforeAnother) {
  script_.entries = {down(Step{.rule = "XF-06", .call = "isend", .nth = 2, .rank = "a"})};
  script_.entries[0].until = Step{.rule = "XF-06", .call = "test", .nth = 2};
  Schedule schedule(script_, injector_, nullptr);
  schedule.begin_run();
  schedule.before_call("a.eth0", "isend(1 bytes)");  // not in a rule
  schedule.begin_rule("XF-06", "a.eth0", "b.eth0");
  schedule.before_call("a.eth0", "isend(1 bytes)");
  schedule.before_call("b.eth0", "isend(1 bytes)");
  schedule.before_call("c.eth0", "isend(1 bytes)");
  schedule.before_call("a.eth0", "test(request 0x1)");
  EXPECT_FALSE(is_down());
  schedule.before_call("a.eth0", "isend(1 bytes)");
  EXPECT_TRUE(is_down());
  schedule.before_call("a.eth0", "test(request 0x1)");
  EXPECT_TRUE(is_down());
  schedule.before_call("b.eth0", "test(request 0x1)");
  EXPECT_FALSE(is_down());
  EXPECT_THAT(schedule.end_rule("XF-06"), SizeIs(1));
}

TEST_F(ScheduleTest, EndsFaultsWithTheirRule) {
  script_.entries = {down(Step{.rule = "XF-*"})};
  Schedule schedule(script_, injector_, nullptr);
  schedule.begin_run();
  for (const char* rule : {"XF-06", "XF-07"}) {
    schedule.begin_rule(rule, "a.eth0", "b.eth0");
    EXPECT_TRUE(is_down());
    const auto affecting = schedule.end_rule(rule);
    EXPECT_FALSE(is_down());
    ASSERT_THAT(affecting, SizeIs(1));
    EXPECT_EQ(affecting[0].rule, rule);
  }
  EXPECT_THAT(schedule.records(), SizeIs(2));
}

TEST_F(ScheduleTest, BeginsAndEndsAtTheGivenTimes) {
  script_.entries = {down()};
  script_.entries[0].at = 1ms;
  script_.entries[0].duration = 20ms;
  Schedule schedule(script_, injector_, nullptr);
  schedule.begin_run();
  while (schedule.records().empty() || is_down()) std::this_thread::yield();  // ctest's time limit is the deadline
  const auto records = schedule.records();
  EXPECT_GE(records[0].start, 0.001);
  EXPECT_GE(records[0].end - records[0].start, 0.02);
}

TEST_F(ScheduleTest, ReturnsOnlyFaultsOnTheRulesHosts) {
  script_.entries = {down()};
  Schedule schedule(script_, injector_, nullptr);
  schedule.begin_run();
  schedule.begin_rule("XF-06", "a.eth0", "b.eth0");
  schedule.begin_rule("XF-07", "a.eth1", "c.eth1");
  schedule.begin_rule("XF-08", "c.eth0", "c.eth1");
  EXPECT_THAT(schedule.end_rule("XF-06"), SizeIs(1));
  EXPECT_THAT(schedule.end_rule("XF-07"), SizeIs(1)) << "a plugin may use all interfaces of host a";
  EXPECT_THAT(schedule.end_rule("XF-08"), IsEmpty());
}

TEST_F(ScheduleTest, ExplainsWhyAFaultNeverBegan) {
  const auto run = [&](Entry entry, unsigned calls) {
    script_.entries = {std::move(entry)};
    Schedule schedule(script_, injector_, nullptr);
    schedule.begin_run();
    schedule.begin_rule("XF-06", "a.eth0", "b.eth0");
    for (unsigned i = 0; i < calls; ++i) schedule.before_call("a.eth0", "isend(1 bytes)");
    schedule.end_rule("XF-06");
    schedule.end_run();
    return schedule.missed();
  };
  const auto third = run(down(Step{.rule = "XF-06", .call = "isend", .nth = 3}), 2);
  ASSERT_THAT(third, SizeIs(1));
  EXPECT_EQ(third[0].fault, "link a-b down, XF-06: isend 3");
  EXPECT_EQ(third[0].source, "f.yaml:2");
  EXPECT_EQ(third[0].reason, "XF-06 made 2 such calls");
  EXPECT_EQ(run(down(Step{.rule = "XF-07"}), 0).at(0).reason, "XF-07 did not run");
  Entry later = down(Step{.rule = "XF-06"});
  later.after = 1h;
  EXPECT_EQ(run(later, 0).at(0).reason, "XF-06 ended before the delay");
  Entry at = down();
  at.at = 1h;
  EXPECT_THAT(run(at, 0).at(0).reason, HasSubstr("the run ended after 0."));
  Entry impossible = down(Step{.rule = "XF-06"});
  impossible.fault.interfaces = {{"a", "eth7", true}};
  EXPECT_EQ(run(impossible, 0).at(0).reason, "host a: eth7: no such interface");
}

TEST_F(ScheduleTest, EndsARunThatCouldNotBegin) {
  Entry impossible = down();
  impossible.fault.interfaces = {{"a", "eth7", true}};
  script_.entries = {down(), impossible};
  Schedule schedule(script_, injector_, nullptr);
  EXPECT_EQ(error_message([&] { schedule.begin_run(); }), "host a: eth7: no such interface");
  EXPECT_TRUE(is_down());
  schedule.end_run();
  EXPECT_FALSE(is_down());
}

TEST_F(ScheduleTest, NamesIneffectiveFaults) {
  const auto run = [&](Entry entry) {
    script_.entries = {std::move(entry)};
    Schedule schedule(script_, injector_, nullptr);
    schedule.begin_run();
    schedule.begin_rule("XF-06", "a.eth0", "b.eth0");
    schedule.end_rule("XF-06");
    schedule.end_run();
    EXPECT_THAT(schedule.missed(), IsEmpty());
    return schedule.ineffective();
  };
  EXPECT_THAT(run(down()), IsEmpty());
  Entry elsewhere = down(Step{.rule = "XF-*"});
  elsewhere.fault.interfaces = find_link(fabric_.graph(), "a-c");
  const auto ineffective = run(elsewhere);
  ASSERT_THAT(ineffective, SizeIs(1));
  EXPECT_EQ(ineffective[0].fault, "link a-b down, XF-*");
  EXPECT_EQ(ineffective[0].reason, "no rule that ran then uses these interfaces");
  Entry other_host = down(Step{.rule = "XF-06"});
  other_host.fault = {.kind = Kind::kKill, .host = "c", .text = "host c killed"};
  EXPECT_EQ(run(other_host).at(0).reason, "no rule that ran then has a rank on host c");
  Entry loss = down();
  loss.fault.kind = Kind::kPackets;
  loss.fault.packets.loss = 0.5;
  EXPECT_EQ(run(loss).at(0).reason, "no packet passed the NICs; packet faults do not affect TCP connections");
}

TEST_F(ScheduleTest, ForwardsCalls) {
  struct Listener : control::CallObserver {
    void before_call(const std::string& rank, const std::string&) override { ranks.push_back(rank); }
    void on_call(const std::string& rank, const control::CallRecord&) override { ranks.push_back(rank); }
    std::vector<std::string> ranks;
  } listener;
  Schedule schedule(script_, injector_, &listener);
  schedule.before_call("a.eth0", "init()");
  schedule.on_call("b.eth0", {});
  EXPECT_THAT(listener.ranks, ElementsAre("a.eth0", "b.eth0"));
}

}  // namespace
}  // namespace plugfest::faults
