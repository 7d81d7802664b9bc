#include "harness/report/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace plugfest::report {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Returns the output of `use`.
template <typename Use>
std::string printed(Style style, Use use) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  Console console(stream, style);
  use(console);
  std::fclose(stream);
  std::string out(text, size);
  std::free(text);
  return out;
}

RuleResult failure() {
  return {
      .id = "XF-26",
      .title = "sizes of a multi-receive",
      .level = 'M',
      .verdict = Verdict::kFail,
      .seconds = 0.25,
      .message = "rank b: sizes[1] = 4096, sent 1000\nexpected 1000",
      .known = {},
      .rerun = "plugfest run --rule XF-26 --seed 41",
      .path = {},
      .ranks = {{.name = "a.eth0", .last_calls = {"isend → Success"}, .log = {"WARN boo"}, .output = "\x1b[2Jbye"}}};
}

TEST(Console, PrintsALinePerRule) {
  const std::string out = printed({}, [](Console& console) { console.rule(failure()); });
  EXPECT_THAT(out, HasSubstr("fail    XF-26  sizes of a multi-receive"));
  EXPECT_THAT(out, HasSubstr("rank b: sizes[1] = 4096, sent 1000\n"));
}

TEST(Console, PrintsDetailsAndTheCommandThatRepeatsARule) {
  report::Run run;
  run.plugin_name = "foo";
  run.api = 8;
  run.rules = {failure()};
  const std::string out = printed({}, [&](Console& console) { console.end(run); });
  EXPECT_THAT(
      out, HasSubstr("FAIL XF-26  sizes of a multi-receive\n  rank b: sizes[1] = 4096, sent 1000\n  expected 1000\n"));
  EXPECT_THAT(out, HasSubstr("  rank a.eth0, last calls:\n    isend → Success\n"));
  EXPECT_THAT(out, HasSubstr("    WARN boo\n"));
  EXPECT_THAT(out, HasSubstr("  again:  plugfest run --rule XF-26 --seed 41\n"));
  EXPECT_THAT(out, HasSubstr("foo v8: 1 fail in 0.0 s"));
}

TEST(Console, PrintsFaultsAndThoseThatNeverStarted) {
  report::Run run;
  run.rules = {failure()};
  run.rules[0].faults = {{.fault = "link a-b down", .source = "f.yaml:2", .rule = "XF-26", .start = 0.1, .end = 0.2}};
  run.faults = {{.fault = "link a-b down", .source = "f.yaml:2", .rule = "XF-26", .start = 1.5, .end = 1.6}};
  run.missed_faults = {{.fault = "host b killed", .source = "f.yaml:3", .reason = "XF-26 made 2 such calls"}};
  const std::string out = printed({}, [&](Console& console) { console.end(run); });
  EXPECT_THAT(out, HasSubstr("fault     1.500 to   1.600 s  link a-b down (f.yaml:2, XF-26)\n"));
  EXPECT_THAT(out, HasSubstr("error   fault host b killed (f.yaml:3) never started: XF-26 made 2 such calls\n"));
  EXPECT_THAT(out, HasSubstr("  fault 0.100 to 0.200 s: link a-b down (f.yaml:2)\n"));
}

TEST(Console, SummarizesRulesWithoutVerdict) {
  report::Run run;
  run.rules = {failure()};
  for (int i = 1; i <= 10; ++i) {
    RuleResult& rule = run.rules.emplace_back();
    rule.id = "CN-" + std::to_string(i);
    rule.message = "never reported";
  }
  const std::string out = printed({}, [&](Console& console) { console.end(run); });
  EXPECT_THAT(out, HasSubstr("\nMISSING 10 of 11 rules have no verdict: CN-1, CN-2, CN-3, CN-4, CN-5, CN-6, CN-7, CN-8 "
                             "and 2 more\n"));
  EXPECT_THAT(out, Not(HasSubstr("never reported")));
}

TEST(Console, ReplacesControlCharactersOfPlugins) {
  report::Run run;
  run.rules = {failure()};
  EXPECT_THAT(printed({}, [&](Console& console) { console.end(run); }), HasSubstr("    ?[2Jbye\n"));
}

TEST(Console, PrintsPlainTextWithoutATerminal) {
  const std::string out = printed({}, [](Console& console) { console.rule(failure()); });
  EXPECT_THAT(out, Not(HasSubstr("\033")));
  EXPECT_THAT(printed({.colour = true}, [](Console& console) { console.rule(failure()); }), HasSubstr("\033[31mfail"));
}

TEST(Console, NamesSurvivingMutants) {
  const MutantResult mutant = {.name = "connect_waits",
                               .rules = {"CN-06"},
                               .killed = false,
                               .killed_by = {},
                               .caught_wrongly = {"DP-01"},
                               .seconds = 1,
                               .evidence = {}};
  const std::string out = printed({}, [&](Console& console) {
    console.mutant(mutant);
    console.end({mutant}, 1);
  });
  EXPECT_THAT(out, HasSubstr("SURVIVED connect_waits"));
  EXPECT_THAT(out, HasSubstr("DP-01 also caught it"));
  EXPECT_THAT(out, HasSubstr("0 of 1 mutants killed"));
}

}  // namespace
}  // namespace plugfest::report
