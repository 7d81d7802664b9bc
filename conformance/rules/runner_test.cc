// Verdicts, levels, order, paths, seeds, known findings and --maxfail, with rules that need no rank.
#include "conformance/rules/runner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "conformance/rules/rule.h"
#include "conformance/rules/turns.h"
#include "fabric/system/testing.h"
#include "harness/control/call.h"

namespace plugfest::conformance {
namespace {

using report::RuleResult;
using report::Verdict;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <auto kFunction>
struct Calling : RuleBody {
  void run() override { kFunction(*this); }
  using RuleBody::broken;
  using RuleBody::check_codes;
  using RuleBody::context;
  using RuleBody::not_applicable;
  using RuleBody::observe;
  using RuleBody::random;
  using RuleBody::should;
  using RuleBody::skip;
};

template <auto kFunction>
Rule rule(const char* id, Level level = Level::kMust, ApiRange apis = ApiRange::all()) {
  return Rule{.id = id,
              .level = level,
              .apis = apis,
              .declaration = {.title = "a rule", .text = "It holds.", .source = "here"},
              .make_body = []() -> std::unique_ptr<RuleBody> { return std::make_unique<Calling<kFunction>>(); }};
}

template <typename... Rules>
Catalog catalog_of(Rules... rules) {
  Catalog catalog;
  (catalog.add(std::move(rules)), ...);
  return catalog;
}

RunSettings settings_for(const Catalog& catalog) {
  RunSettings settings;
  settings.rules = select_rules(catalog, {});
  settings.paths = {{"a.eth0", "b.eth0"}, {"a.eth1", "c.eth0"}, {"b.eth1", "c.eth1"}};
  settings.library = "/lib/libnccl-net-x.so";
  settings.api = 12;
  settings.rerun = "plugfest run --seed 1";
  return settings;
}

RuleResult result_of(Rule rule, bool strict = false) {
  Catalog catalog = catalog_of(std::move(rule));
  RunSettings settings = settings_for(catalog);
  settings.strict = strict;
  return run_rules(nullptr, catalog, settings).at(0);
}

auto holds = [](auto&) {};
auto breaks = [](auto& body) { body.broken("expected 1, got 2"); };
auto weak = [](auto& body) {
  body.should(false, [] { return std::string("only 31 accepted"); });
  body.should(true, []() -> std::string { throw std::logic_error("a message that nobody needs"); });
};
auto remarks = [](auto& body) { body.observe("truncates"); };
auto hangs = [](auto&) {
  throw control::Hung("a.eth0", "rank a.eth0: connect(device 0) did not return", "connect(device 0)", {"#0 poll"});
};
void hang_with_stack(const std::vector<std::string>& stack) {
  throw control::Hung("a.eth0", "rank a.eth0: connect(device 0) did not return", "connect(device 0)", stack);
}
auto hangs_in_nic = [](auto&) {
  hang_with_stack({"in system call futex", "__lll_lock_wait (libc.so.6)",
                   "plugfest::roce::PortMap::add(int) at /src/fabric/roce/port_map.cc:7 (libibverbs.so.1)",
                   "ibv_open_device (libibverbs.so.1)", "connect at /src/p.c:56 (libp.so)"});
};
auto polls_forever = [](auto&) {
  hang_with_stack({"in system call recvmsg", "recvmsg (libc.so.6)",
                   "plugfest::roce::poll_cq(ibv_cq*) at /src/fabric/roce/poll.cc:7 (libibverbs.so.1)",
                   "connect at /src/p.c:56 (libp.so)"});
};
auto hangs_in_rdma_core = [](auto&) {
  hang_with_stack({"in system call read", "read (libc.so.6)", "ibv_open_device (libibverbs.so.1)"});
};
auto crashes = [](auto&) {
  throw control::Crashed("a.eth0", "rank a.eth0: SIGSEGV in listen", "listen", 11, 0, {"#0 f"});
};
auto waits_in_read = [](auto&) {
  throw control::Hung(
      "a.eth0", "rank a.eth0: test(request 0x2) did not return", "test(request 0x2)",
      {"in system call read", "read (libc.so.6)", "(anonymous namespace)::fetch(int) at /src/p.c:56 (plugin.so)",
       "test at /src/p.c:90 (plugin.so)"});
};
auto runs_in_test = [](auto&) {
  throw control::Hung("a.eth0", "rank a.eth0: test did not return", "test", {"fetch at /src/p.c:56 (plugin.so)"});
};
auto crashes_without_source = [](auto&) {
  throw control::Crashed("a.eth0", "rank a.eth0: SIGSEGV in init", "init()", 11, 0,
                         {"memcpy (libc.so.6)", "start (plugin.so)"});
};
auto fails_a_call = [](auto&) {
  throw control::CallFailed("a.eth0", "rank a.eth0: listen returned ncclSystemError (2)", 2);
};
auto returns_seven = [](auto&) {
  throw control::UndefinedCode("a.eth0", "rank a.eth0: accept returned ncclInProgress (7)");
};
auto checks_codes = [](auto& body) {
  body.check_codes([] { throw control::UndefinedCode("a.eth0", "rank a.eth0: test returned ncclInProgress (7)"); });
};
auto harness_fails = [](auto&) { throw control::HarnessError("rank a.eth0 did not start"); };
auto throws_integer = [](auto&) { throw 7; };
auto does_not_apply = [](auto& body) { body.not_applicable("maxRecvs is 1"); };
auto skips = [](auto& body) { body.skip("no device"); };

using Call = std::pair<std::string, std::string>;

// The cause of a rule on a library plugin.so: its call and its place.
Call cause_of(Rule rule) {
  const ScratchFolder folder;
  std::ofstream(folder / "plugin.so").flush();
  std::filesystem::create_symlink("plugin.so", folder / "link.so");
  Catalog catalog = catalog_of(std::move(rule));
  RunSettings settings = settings_for(catalog);
  settings.library = folder / "link.so";
  const report::Cause cause = run_rules(nullptr, catalog, settings).at(0).cause;
  return {cause.call, cause.place};
}

TEST(Verdicts, HaveTheCallAndThePlaceInThePlugin) {
  EXPECT_EQ(cause_of(rule<waits_in_read>("CN-06")), Call("test", "read at p.c:56"));
  EXPECT_EQ(cause_of(rule<runs_in_test>("CN-06")), Call("test", "")) << "a random place of a loop";
  EXPECT_EQ(cause_of(rule<crashes_without_source>("CN-06")), Call("init", "start"));
  EXPECT_EQ(cause_of(rule<fails_a_call>("CN-06")), Call("", ""));
}

TEST(Verdicts, ARuleThatReturnsPasses) {
  const RuleResult result = result_of(rule<holds>("CN-06"));
  EXPECT_EQ(result.verdict, Verdict::kPass);
  EXPECT_EQ(result.message, "");
  EXPECT_EQ(result.rerun, "plugfest run --seed 1 --rule CN-06");
  EXPECT_EQ(result.title, "a rule");
}

using Ending = std::pair<Verdict, std::string>;

// The verdict and the message of a rule.
Ending ending_of(Rule rule, bool strict = false) {
  const RuleResult result = result_of(std::move(rule), strict);
  return {result.verdict, result.message};
}

TEST(Verdicts, ABrokenMustFails) {
  EXPECT_EQ(ending_of(rule<breaks>("CN-06")), Ending(Verdict::kFail, "expected 1, got 2"));
}

TEST(Verdicts, ABrokenShouldWarnsAndFailsIfStrict) {
  EXPECT_EQ(result_of(rule<breaks>("LD-02", Level::kShould)).verdict, Verdict::kWarn);
  EXPECT_EQ(result_of(rule<breaks>("LD-02", Level::kShould), true).verdict, Verdict::kFail);
}

TEST(Verdicts, AnInfoRuleIsInfoWhetherItHoldsOrNot) {
  EXPECT_EQ(result_of(rule<breaks>("LD-13", Level::kInfo), true).verdict, Verdict::kInfo);
  EXPECT_EQ(result_of(rule<holds>("LD-13", Level::kInfo)).verdict, Verdict::kInfo);
}

TEST(Verdicts, AWeaknessOfAMustIsAWarning) {
  EXPECT_EQ(ending_of(rule<weak>("XF-07")), Ending(Verdict::kWarn, "only 31 accepted"));
  EXPECT_EQ(ending_of(rule<weak>("XF-07"), true), Ending(Verdict::kFail, "only 31 accepted"));
}

TEST(Verdicts, AnObservationPassesWithItsMessage) {
  EXPECT_EQ(ending_of(rule<remarks>("XF-11")), Ending(Verdict::kPass, "truncates"));
}

TEST(Verdicts, AHungCallIsATimeoutWithItsStack) {
  EXPECT_EQ(ending_of(rule<hangs>("CN-06")),
            Ending(Verdict::kTimeout, "rank a.eth0: connect(device 0) did not return\n  #0 poll"));
}

TEST(Verdicts, ACallThatWaitsInTheNicIsAnError) {
  const auto [verdict, message] = ending_of(rule<hangs_in_nic>("CN-06"));
  EXPECT_EQ(verdict, Verdict::kError);
  EXPECT_THAT(
      message,
      StartsWith(
          "rank a.eth0: connect(device 0) did not return: it waits in plugfest's own NIC\n  in system call futex\n"));
  EXPECT_EQ(result_of(rule<polls_forever>("CN-06")).verdict, Verdict::kTimeout);
  EXPECT_EQ(result_of(rule<hangs_in_rdma_core>("CN-06")).verdict, Verdict::kTimeout);
}

TEST(Verdicts, ACrashIsACrash) {
  EXPECT_EQ(ending_of(rule<crashes>("CN-06")), Ending(Verdict::kCrash, "rank a.eth0: SIGSEGV in listen\n  #0 f"));
}

TEST(Verdicts, ACrashOrHangOfAShouldRuleWarnsUnlessStrict) {
  EXPECT_EQ(ending_of(rule<crashes>("LD-02", Level::kShould)),
            Ending(Verdict::kWarn, "rank a.eth0: SIGSEGV in listen\n  #0 f"));
  EXPECT_EQ(result_of(rule<crashes>("LD-02", Level::kShould), true).verdict, Verdict::kCrash);
  EXPECT_EQ(result_of(rule<hangs>("LD-02", Level::kShould)).verdict, Verdict::kWarn);
  EXPECT_EQ(result_of(rule<hangs>("LD-02", Level::kShould), true).verdict, Verdict::kTimeout);
}

TEST(Verdicts, ACallWithAnErrorCodeBreaksTheRule) {
  EXPECT_EQ(ending_of(rule<fails_a_call>("CN-06")),
            Ending(Verdict::kFail, "rank a.eth0: listen returned ncclSystemError (2)"));
}

TEST(Verdicts, FailuresOfTheHarnessAreErrors) {
  EXPECT_EQ(result_of(rule<harness_fails>("CN-06")).verdict, Verdict::kError);
  EXPECT_EQ(result_of(rule<throws_integer>("CN-06")).verdict, Verdict::kError);
}

TEST(Verdicts, NotApplicableAndSkippedKeepTheirReasons) {
  EXPECT_EQ(ending_of(rule<does_not_apply>("XF-22")), Ending(Verdict::kNotApplicable, "maxRecvs is 1"));
  EXPECT_EQ(ending_of(rule<skips>("IN-01")), Ending(Verdict::kSkip, "no device"));
}

TEST(Verdicts, ARuleForOtherVersionsOrSubjectsIsNotApplicable) {
  EXPECT_EQ(ending_of(rule<breaks>("IN-03", Level::kMust, ApiRange::up_to(10))),
            Ending(Verdict::kNotApplicable, "applies to up to v10; this is v12"));

  Catalog catalog = catalog_of(rule<breaks>("LD-01", Level::kMust, ApiRange::all().libraries_only()));
  RunSettings settings = settings_for(catalog);
  settings.library.clear();
  EXPECT_EQ(run_rules(nullptr, catalog, settings).at(0).verdict, Verdict::kNotApplicable);
}

Catalog many_rules() {
  Catalog catalog;
  for (const char* id : {"TS-01", "CN-01", "CN-02", "XF-01", "LD-01", "IN-01", "DP-01"}) catalog.add(rule<holds>(id));
  return catalog;
}

TEST(Verdicts, AnErrorThatMeansNoRouteComesWithAdvice) {
  Catalog catalog =
      catalog_of(rule<[](auto& body) { body.broken("connect failed: Network is unreachable"); }>("CN-01"));
  catalog.add(rule<[](auto& body) {
    report::RankRecord record;
    record.log = {"connect to 10.0.0.2<4711> failed : Network is unreachable"};
    body.context().records->push_back(record);
    body.broken("connect returned ncclSystemError");
  }>("CN-02"));
  catalog.add(rule<breaks>("CN-03"));
  RunSettings settings = settings_for(catalog);
  settings.advice_if_unreachable = "add --oob";
  std::vector<std::string> advised;
  for (const RuleResult& result : run_rules(nullptr, catalog, settings))
    if (result.message.ends_with("\nadd --oob")) advised.push_back(result.id);
  EXPECT_THAT(advised, ElementsAre("CN-01", "CN-02"));
}

auto writes_much = [](auto& body) {
  report::RankRecord record;
  for (int line = 1; line <= 2999; ++line) record.output += fmt::format("line {}\n", line);
  record.output += std::string(1200, 'x') + "\n";
  body.context().records->push_back(record);
  body.broken("expected 1, got 2");
};

TEST(Runner, KeepsTheLastLinesOfTheOutputOfARank) {
  const RuleResult result = result_of(rule<writes_much>("CN-01"));
  EXPECT_THAT(result.ranks.at(0).output, StartsWith("… 1000 earlier lines left out …\nline 1001\n"));
  EXPECT_THAT(result.ranks.at(0).output, EndsWith("\nline 2999\n" + std::string(1000, 'x') + "… (1200 bytes)\n"));
}

TEST(Runner, ResultsAreInContractOrderAndReportedOnce) {
  const Catalog catalog = many_rules();
  RunSettings settings = settings_for(catalog);
  std::vector<std::string> reported;
  settings.on_result = [&](const RuleResult& result) { reported.push_back(result.id); };
  std::vector<std::string> ids;
  for (const RuleResult& result : run_rules(nullptr, catalog, settings)) ids.push_back(result.id);
  EXPECT_THAT(ids, ElementsAre("LD-01", "IN-01", "DP-01", "CN-01", "CN-02", "XF-01", "TS-01"));
  EXPECT_THAT(reported, ::testing::UnorderedElementsAreArray(ids));
}

TEST(Runner, StartsWithRulesInWhichBlockingPluginsHangAtDifferentPlaces) {
  Rule blocking = rule<holds>("XF-31");
  blocking.declaration.starts_first = true;
  const Catalog catalog = catalog_of(rule<holds>("CN-01"), rule<holds>("XF-30"), blocking);
  RunSettings settings = settings_for(catalog);
  settings.paths.resize(1);
  std::vector<std::string> begun;
  settings.on_begin = [&](const Rule& one, const bed::RankPath&) { begun.push_back(one.id); };
  run_rules(nullptr, catalog, settings);
  EXPECT_THAT(begun, ElementsAre("XF-31", "CN-01", "XF-30"));
  begun.clear();
  settings.runs_alone = [](const Rule&) { return false; };
  run_rules(nullptr, catalog, settings);
  EXPECT_THAT(begun, ElementsAre("CN-01", "XF-30", "XF-31")) << "with a user's faults, in the order of the contract";
}

TEST(Runner, RulesThatStartFirstAreOnDifferentPaths) {
  std::vector<Rule> blocking;
  for (const char* id : {"CN-01", "CN-04"}) blocking.push_back(rule<holds>(id));
  for (Rule& one : blocking) one.declaration.starts_first = true;
  const Catalog catalog =
      catalog_of(std::move(blocking[0]), rule<holds>("CN-02"), rule<holds>("CN-03"), std::move(blocking[1]));
  const std::vector<RuleResult> results = run_rules(nullptr, catalog, settings_for(catalog));
  EXPECT_NE(results.at(0).path, results.at(3).path) << "although there are three paths";
}

auto observes_path = [](auto& body) {
  body.observe(body.context().ranks.ranks[0] + " " + std::to_string(body.random()()));
};

TEST(Runner, ARuleAloneHasTheSamePathAndRandomNumbersAsAmongOthers) {
  Catalog catalog;
  for (const char* id : {"CN-01", "CN-02", "CN-03", "CN-04", "CN-05"}) catalog.add(rule<observes_path>(id));
  RunSettings settings = settings_for(catalog);
  settings.seed = 41;
  const std::vector<RuleResult> all = run_rules(nullptr, catalog, settings);
  EXPECT_THAT(all.at(4).message, HasSubstr("a.eth1 "));
  settings.rules = {catalog.find("CN-05")};
  EXPECT_EQ(run_rules(nullptr, catalog, settings).at(0).message, all.at(4).message);
  settings.seed = 42;
  EXPECT_NE(run_rules(nullptr, catalog, settings).at(0).message, all.at(4).message);
}

auto observes_ranks = [](auto& body) {
  std::string all;
  for (const std::string& name : body.context().ranks.ranks) all += name + " ";
  body.observe(all + body.context().ranks.interfaces[1][0]);
};

TEST(Runner, ARuleWithMoreRanksGetsHosts) {
  Catalog catalog = catalog_of(rule<observes_ranks>("CN-01"));
  Rule of_three = rule<observes_ranks>("CN-02");
  of_three.declaration.ranks = 3;
  catalog.add(of_three);
  RunSettings settings = settings_for(catalog);
  settings.hosts = bed::ranks_of_hosts(topology::named("mesh:4"));
  const std::vector<RuleResult> results = run_rules(nullptr, catalog, settings);
  EXPECT_EQ(results.at(0).message, "a.eth0 b.eth0 b.eth0");
  EXPECT_EQ(results.at(1).message, "h1 h2 h3 h2.eth0");
  EXPECT_EQ(results.at(1).path, "h1 h2 h3");

  settings.hosts = {};
  EXPECT_EQ(run_rules(nullptr, catalog, settings).at(1).message, "needs 3 hosts, and all ranks run on one");
}

std::atomic<int> g_running = 0;
std::atomic<int> g_most_beside_alone = 0;
std::atomic<int> g_alone = 0;
auto runs_beside = [](auto&) {
  ++g_running;
  for (int i = 0; i < 20; ++i) std::this_thread::yield();
  --g_running;
};
auto observes_others = [](auto&) {
  for (int i = 0; i < 100; ++i) {
    g_most_beside_alone = std::max(g_most_beside_alone.load(), g_running.load());
    std::this_thread::yield();
  }
};
auto runs_alone = [](auto& body) {
  if (body.context().turn != nullptr) body.context().turn->be_alone();
  ++g_alone;
  observes_others(body);
};

TEST(Runner, NothingRunsBesideARuleWithFaults) {
  for (const bool by_setting : {true, false}) {
    g_alone = g_most_beside_alone = 0;
    Catalog catalog;
    for (int i = 1; i <= 30; ++i) {
      const std::string id = fmt::format("CN-{:02}", i);
      Rule one = i % 4 == 0 ? rule<runs_alone>(id.c_str()) : rule<runs_beside>(id.c_str());
      one.declaration.alone = i % 4 == 0;
      catalog.add(std::move(one));
    }
    RunSettings settings = settings_for(catalog);
    // Keeps the order of the rules.
    settings.runs_alone = [&](const Rule& one) { return by_setting && std::stoi(one.id.substr(3)) % 4 == 0; };
    run_rules(nullptr, catalog, settings);
    EXPECT_EQ(g_alone, 7);
    EXPECT_EQ(g_most_beside_alone, 0);
  }
}

TEST(Runner, RulesThatRunAloneFollowAllOthers) {
  Rule alone = rule<runs_alone>("CN-01");
  alone.declaration.alone = true;
  const Catalog catalog = catalog_of(alone, rule<holds>("CN-02"), rule<holds>("CN-03"), rule<holds>("CN-04"));
  RunSettings settings = settings_for(catalog);
  std::mutex mutex;
  std::vector<std::string> begun;
  settings.on_begin = [&](const Rule& one, const bed::RankPath&) {
    const std::lock_guard lock(mutex);
    begun.push_back(one.id);
  };
  run_rules(nullptr, catalog, settings);
  EXPECT_EQ(begun.back(), "CN-01");
}

TEST(Runner, ARuleThatRunsAloneHasToDeclareIt) {
  const Catalog catalog = catalog_of(rule<runs_alone>("CN-01"));
  const std::vector<RuleResult> results = run_rules(nullptr, catalog, settings_for(catalog));
  EXPECT_EQ(results.front().verdict, Verdict::kError);
  EXPECT_EQ(results.front().message, "CN-01 runs alone, but its declaration does not say so");
}

TEST(Runner, NothingOfAnotherRunRunsBesideARuleWithMoreRanks) {
  g_most_beside_alone = 0;
  Catalog of_three, of_two;
  for (int i = 1; i <= 20; ++i) {
    const std::string id = fmt::format("CN-{:02}", i);
    Rule several = rule<observes_others>(id.c_str());
    several.declaration.ranks = 3;
    of_three.add(several);
    of_two.add(rule<runs_beside>(id.c_str()));
  }
  Turns turns;
  RunSettings first = settings_for(of_three), second = settings_for(of_two);
  first.hosts = bed::ranks_of_hosts(topology::named("mesh:4"));
  first.among_runs = second.among_runs = &turns;
  std::thread other([&] { run_rules(nullptr, of_two, second); });
  run_rules(nullptr, of_three, first);
  other.join();
  EXPECT_EQ(g_most_beside_alone, 0);
}

TEST(Turn, StartsAloneAfterRulesThatWaitInTheirBodiesToRunAlone) {
  for (int round = 0; round < 200; ++round) {
    Turns turns;
    auto running = std::make_unique<Turn>(turns), started = std::make_unique<Turn>(turns);
    std::atomic<bool> started_has_ended = false;
    std::thread starts([&] {
      const Turn turn(turns, true);
      EXPECT_TRUE(started_has_ended) << "a rule has ranks, and another one runs alone";
    });
    std::thread waits([&] {
      started->be_alone();
      started_has_ended = true;
      started.reset();
    });
    running.reset();
    starts.join();
    waits.join();
  }
}

TEST(Runner, RulesThatDidNotRunAreMissing) {
  const Catalog catalog = many_rules();
  RunSettings settings = settings_for(catalog);
  const std::atomic<bool> stop = true;
  settings.stop = &stop;
  const std::vector<RuleResult> results = run_rules(nullptr, catalog, settings);
  EXPECT_EQ(results.size(), catalog.rules().size());
  for (const RuleResult& result : results) {
    EXPECT_EQ(result.verdict, Verdict::kMissing);
    EXPECT_EQ(result.message, "not started: a signal ended the run");
  }
}

report::KnownFindings known(const char* rule) {
  return report::KnownFindings(
      {{.rule = rule, .subject = "*", .reason = "accepted", .expires = "", .location = "known.yaml:2"}});
}

TEST(Runner, WaivesKnownFindingsBeforeItReportsThem) {
  Catalog catalog = catalog_of(rule<breaks>("CN-01"), rule<breaks>("CN-02"));
  RunSettings settings = settings_for(catalog);
  settings.known = known("CN-01");
  std::map<std::string, Verdict> reported;
  settings.on_result = [&](const RuleResult& result) { reported[result.id] = result.verdict; };
  const std::vector<RuleResult> results = run_rules(nullptr, catalog, settings);
  EXPECT_EQ(results.at(0).verdict, Verdict::kWaived);
  EXPECT_EQ(results.at(0).known, "known finding: accepted (known.yaml:2)");
  EXPECT_EQ(results.at(1).verdict, Verdict::kFail);
  EXPECT_EQ(reported["CN-01"], Verdict::kWaived);
  EXPECT_EQ(reported["CN-02"], Verdict::kFail);
}

TEST(Runner, SkipsRulesAfterAFailureWithFailFast) {
  Catalog catalog = catalog_of(rule<holds>("CN-01"), rule<breaks>("CN-02"), rule<holds>("CN-03"));
  RunSettings settings = settings_for(catalog);
  settings.paths.resize(1);  // one rule after the other
  settings.max_failures = 1;
  const std::vector<RuleResult> results = run_rules(nullptr, catalog, settings);
  EXPECT_EQ(results.at(0).verdict, Verdict::kPass);
  EXPECT_EQ(results.at(1).verdict, Verdict::kFail);
  EXPECT_EQ(results.at(2).verdict, Verdict::kSkip);
  EXPECT_EQ(results.at(2).message, "not started: the limit of --maxfail was reached");
}

TEST(Runner, ContinuesAfterAWaivedRuleWithFailFast) {
  Catalog catalog = catalog_of(rule<breaks>("CN-01"), rule<holds>("CN-02"));
  RunSettings settings = settings_for(catalog);
  settings.paths.resize(1);
  settings.max_failures = 1;
  settings.known = known("CN-01");
  EXPECT_EQ(run_rules(nullptr, catalog, settings).at(1).verdict, Verdict::kPass);
}

TEST(UndefinedCodes, BreakOneRuleWhereverTheyAreReturned) {
  Catalog catalog = catalog_of(rule<returns_seven>("CN-01"), rule<holds>("CN-02"), rule<checks_codes>("CN-30"),
                               rule<returns_seven>("XF-01"));
  Rule about_codes = rule<holds>("ER-01");
  about_codes.declaration.covers_undefined_codes = true;
  catalog.add(about_codes);
  RunSettings settings = settings_for(catalog);
  std::vector<std::string> reported;
  settings.on_result = [&](const RuleResult& result) { reported.push_back(result.id); };
  const std::vector<RuleResult> results = run_rules(nullptr, catalog, settings);
  EXPECT_EQ(results[0].verdict, Verdict::kSkip);
  EXPECT_EQ(results[0].message, "not tested, see ER-01: rank a.eth0: accept returned ncclInProgress (7)");
  EXPECT_EQ(results[1].verdict, Verdict::kPass);
  EXPECT_EQ(results[2].verdict, Verdict::kFail) << "its clause is about codes";
  EXPECT_EQ(results[3].verdict, Verdict::kSkip);
  EXPECT_EQ(results[4].verdict, Verdict::kFail);
  EXPECT_EQ(results[4].message,
            "rank a.eth0: accept returned ncclInProgress (7) (in CN-01)\nrules in which it happened: CN-01, XF-01");
  EXPECT_EQ(results[4].rerun, "plugfest run --seed 1 --rule CN-01,ER-01");
  EXPECT_EQ(reported.size(), 5u);
  EXPECT_EQ(reported.back(), "ER-01") << "it is known last";
}

TEST(UndefinedCodes, BreakTheRuleAboutCodesEvenIfItWasNotStarted) {
  Catalog catalog = catalog_of(rule<returns_seven>("CN-01"), rule<breaks>("CN-02"));
  Rule about_codes = rule<holds>("ER-01");
  about_codes.declaration.covers_undefined_codes = true;
  catalog.add(about_codes);
  RunSettings settings = settings_for(catalog);
  settings.paths.resize(1);
  settings.max_failures = 1;
  const std::vector<RuleResult> results = run_rules(nullptr, catalog, settings);
  EXPECT_EQ(results[0].verdict, Verdict::kSkip);
  EXPECT_EQ(results[2].verdict, Verdict::kFail);
  EXPECT_EQ(results[2].message, "rank a.eth0: accept returned ncclInProgress (7) (in CN-01)");
}

TEST(UndefinedCodes, BreakTheirRuleIfTheRuleAboutCodesDoesNotRun) {
  EXPECT_EQ(ending_of(rule<returns_seven>("CN-01")),
            Ending(Verdict::kFail, "rank a.eth0: accept returned ncclInProgress (7)"));
}

}  // namespace
}  // namespace plugfest::conformance
