// plugfest run --faults: the effects of faults, and their records in the results.

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST_F(RunTest, FaultsOfARuleDoNotHitRulesBesideIt) {
  const fs::path script = folder_ / "f.yaml";
  std::ofstream(script) << "faults:\n  - {on: {rule: 'TS-*'}, interface: b.eth0, address: 192.168.100.77}\n"
                        // One of these hosts is on the path of the rule.
                        << "  - {on: {rule: CN-09, call: connect}, host: a, do: kill}\n"
                        << "  - {on: {rule: CN-09, call: connect}, host: b, do: kill}\n";
  EXPECT_EQ(run_rules("--faults " + script.string() + " --rule 'TS-0?,CN-09,CL-0?,LD-10' --seed 7"), 1);
  std::string again;
  const auto results = read_results();
  for (const auto& rule : results["runs"].at(0)["rules"]) {
    const std::string id = rule["id"];
    if (id == "CN-09") again = rule["rerun"];
    if (id == "CN-09" || id.starts_with("TS-")) continue;
    EXPECT_NE(rule["verdict"], "fail") << id << ": " << rule["message"];
    EXPECT_NE(rule["verdict"], "crash") << id << ": " << rule["message"];
    EXPECT_THAT(rule["rerun"], Not(HasSubstr("--faults"))) << "no fault hits it";
  }
  EXPECT_THAT(again, HasSubstr("--faults " + script.string() + " --api v12 --seed 7 --rule CN-09"));
  EXPECT_THAT(output_of(run_shell(again), 1), ContainsRegex("host [ab] killed"));
}

TEST_F(RunTest, PassesWithALinkDownForAWhile) {
  const fs::path script = folder_ / "faults.yaml", trace = folder_ / "t.json";
  std::ofstream(script) << "faults:\n"
                           "  - {on: {rule: XF-06, call: send}, for: 100ms, link: a-b, do: down}\n"
                           "  - {on: {rule: XF-06, call: connect, rank: a}, for: 1ms, host: b, do: freeze}\n";
  EXPECT_EQ(run_rules("-t pair --rule XF-06 --faults " + script.string() + " --trace " + trace.string()), 0)
      << output();
  EXPECT_THAT(output(), HasSubstr("link a-b down"));
  const auto run = read_results()["runs"].at(0);
  ASSERT_EQ(run["faults"].size(), 2u);
  EXPECT_EQ(run["faults"].at(0)["fault"], "host b frozen");
  EXPECT_EQ(run["faults"].at(1)["fault"], "link a-b down");
  EXPECT_EQ(run["faults"].at(1)["source"], script.string() + ":2");
  EXPECT_EQ(run["faults"].at(1)["rule"], "XF-06");
  EXPECT_GE(run["faults"].at(1)["end"].get<double>() - run["faults"].at(1)["start"].get<double>(), 0.1);
  EXPECT_EQ(run["rules"].at(0)["faults"].size(), 2u);
  EXPECT_THAT(content_of(trace), HasSubstr("\"name\":\"link a-b down\""));
}

TEST_F(RunTest, FailsIfAllPacketsAreLost) {
  EXPECT_EQ(run_rules("--rule XF-01 --faults loss=100% --seed 7 --timeout-scale 0.05"), 1) << output();
  EXPECT_THAT(output(), HasSubstr(": loss 100% on every link (--faults)"));
  EXPECT_THAT(output(), HasSubstr(" --faults 'loss=100%' --timeout-scale 0.05 --api v12 --seed 7 --rule XF-01"));
}

TEST_F(RunTest, ReportsAnInjectedKill) {
  const fs::path script = folder_ / "faults.yaml";
  std::ofstream(script) << "faults:\n  - {on: {rule: XF-06, call: send}, host: b, do: kill}\n";
  EXPECT_EQ(run_rules("-t pair --rule XF-06 --faults " + script.string()), 1) << output();
  const auto rule = read_results()["runs"].at(0)["rules"].at(0);
  EXPECT_EQ(rule["verdict"], "crash");
  EXPECT_EQ(rule["faults"].at(0)["fault"], "host b killed");
}

TEST_F(RunTest, ExitsWithTwoIfAFaultNeverStarted) {
  const fs::path script = folder_ / "faults.yaml";
  std::ofstream(script) << "faults:\n  - {on: {rule: CN-06, call: connect, nth: 999999}, host: b, do: kill}\n";
  EXPECT_EQ(run_rules("--rule CN-06 --faults " + script.string()), 2) << output();
  EXPECT_THAT(output(), HasSubstr("host b killed, CN-06: connect 999999"));
  const auto run = read_results()["runs"].at(0);
  EXPECT_EQ(run["rules"].at(0)["verdict"], "pass");
  EXPECT_THAT(run["missed_faults"].at(0)["reason"], HasSubstr("CN-06 made "));
}

}  // namespace
}  // namespace plugfest::cli
