#include "harness/report/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "harness/report/text.h"

namespace plugfest::report {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Returns the output of `use`.
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

// `count` rules whose calls hang at one place.
report::Run hanging_run(int count) {
  report::Run run;
  run.plugin_name = "foo";
  run.api = 8;
  for (int i = 0; i < count; ++i) {
    RuleResult& rule = run.rules.emplace_back(failure());
    rule.id = "XF-" + std::to_string(10 + i);
    rule.verdict = Verdict::kTimeout;
    rule.message = "rank b: test(request " + std::to_string(i) + ") did not return within 10 s";
    rule.cause = {"test", "read at p.c:56"};
  }
  return run;
}

// The output of a run: its rows, its end.
std::string printed_run(const Style& style, const report::Run& run) {
  return printed(style, [&](Console& console) {
    console.begin(Document{}, run, run.rules.size());
    for (const RuleResult& rule : run.rules) console.rule(rule);
    console.end(run);
  });
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Console, PrintsOneMessageForOneCause) {
  const std::string out = printed_run({}, hanging_run(40));
  EXPECT_THAT(out, HasSubstr("\n40 rules hang in read at p.c:56 (test); start with XF-10\n"));
  EXPECT_EQ(count_of(out, "did not return within 10 s"), 2u) << "a row and the details of the first rule";
  EXPECT_EQ(count_of(out, "last calls:"), 1u);
  EXPECT_THAT(out, HasSubstr("\nfailed:\ntimeout 40 rules hang in read at p.c:56 (test); start with XF-10: XF-10 "));
  EXPECT_LT(lines_of(out).size(), 30u);
  EXPECT_EQ(count_of(printed_run({.detail = Detail::kVerbose}, hanging_run(40)), "last calls:"), 40u);
}

TEST(Console, NamesTheInterfacesThatAReleaseDoesNotUseOnce) {
  const report::Run run = hanging_run(1);
  Document document;
  document.release = {.nccl = "2.30.7", .unused = {"GIN v11"}};
  const std::string out = printed(Style{}, [&](Console& console) {
    console.begin(document, run, 1);
    document.runs.push_back(run);
    console.begin(document, run, 1);
  });
  EXPECT_EQ(count_of(out, "\n  nccl 2.30.7 loads net v8 of this library\n"), 2u) << out;
  EXPECT_EQ(count_of(out, "\n  NCCL 2.30.7 will not use GIN v11\n"), 1u) << out;
}

TEST(Console, NamesACauseWhenASecondRuleHasIt) {
  report::Run run = hanging_run(5);
  for (int i = 2; i < 5; ++i) run.rules[static_cast<std::size_t>(i)].cut_short = true;
  const std::string out = printed(Style{}, [&](Console& console) {
    console.begin(Document{}, run, 10);
    for (const RuleResult& rule : run.rules) console.rule(rule);
    EXPECT_THAT(
        console.progress_text(),
        testing::MatchesRegex("5 of 10 rules, 5 failed \\(5 rules hang in read at p.c:56 \\(test\\), 3 of them cut "
                              "short\\), about 1 s left"));
  });
  EXPECT_EQ(count_of(out, "So far, 2 rules hang in read at p.c:56 (test); start with XF-10\n"), 1u);
  EXPECT_EQ(count_of(out, "calls that hang there get less time; --patient"), 1u);
}

TEST(Console, QuietNamesOnlyTheFailedRulesAndTheSummary) {
  report::Run run = hanging_run(2);
  run.rules.push_back(failure());
  EXPECT_EQ(printed_run({.detail = Detail::kQuiet}, run),
            "\nfailed:\n"
            "timeout 2 rules hang in read at p.c:56 (test); start with XF-10: XF-10 XF-11\n"
            "fail    XF-26  sizes of a multi-receive\n"
            "foo v8: 1 fail, 2 timeout in 0.0 s; idle ranks used 0.00% CPU\n");
}

TEST(Console, SummarizesGoodRunsByGroup) {
  report::Run run;
  run.plugin_name = "foo";
  for (int i = 0; i < 11; ++i) {
    RuleResult& rule = run.rules.emplace_back();
    rule.id = (i < 2 ? "CN-" : "XF-") + std::to_string(10 + i);
    rule.title = "title";
    rule.verdict = Verdict::kPass;
    rule.group = i < 2 ? "connect and accept" : "isend and irecv";
  }
  run.rules[1].verdict = Verdict::kNotApplicable;
  const std::string out = printed_run({}, run);
  EXPECT_THAT(out, HasSubstr("\nCN  connect and accept             1 pass, 1 n/a\n"
                             "XF  isend and irecv                9 pass\n"));
  EXPECT_THAT(out, Not(HasSubstr("CN-10")));
  EXPECT_THAT(printed_run({.detail = Detail::kVerbose}, run), HasSubstr("pass    CN-10  title"));
  run.rules.resize(10);
  EXPECT_THAT(printed_run({}, run), AllOf(HasSubstr("pass    CN-10  title"), Not(HasSubstr("CN  connect"))));
  EXPECT_THAT(printed_run({.only_run = false}, run), Not(HasSubstr("CN")));
}

TEST(Console, TellsWhyHalfOfAGroupDoesNotApply) {
  report::Run run;
  for (int i = 0; i < 11; ++i) {
    RuleResult& rule = run.rules.emplace_back();
    rule.id = "PI-" + std::to_string(10 + i);
    rule.verdict = i < 5 ? Verdict::kPass : Verdict::kNotApplicable;
    rule.group = "profiler plugins";
    if (i >= 5) rule.message = "init wrote the activation mask 0x0\n";
  }
  const std::string row = "PI  profiler plugins               5 pass, 6 n/a\n";
  EXPECT_THAT(printed_run({}, run), HasSubstr(row + "    6 n/a: init wrote the activation mask 0x0\n"));
  run.rules[5].message = "not with one device";
  EXPECT_THAT(printed_run({}, run), AllOf(HasSubstr(row), Not(HasSubstr("n/a:")))) << "less than half";
}

TEST(Console, NamesTheSlowestRules) {
  report::Run run;
  for (const double seconds : {0.5, 2.0, 1.0}) {
    RuleResult& rule = run.rules.emplace_back(failure());
    rule.seconds = seconds;
    rule.id = "CN-" + std::to_string(run.rules.size());
  }
  const std::string out = printed_run({.durations = 2}, run);
  EXPECT_THAT(out, HasSubstr("\nslowest:\n   2.00 s  CN-2   sizes of a multi-receive\n   1.00 s  CN-3 "));
  EXPECT_THAT(out, Not(HasSubstr("   0.50 s  CN-1")));
}

TEST(Console, ProgressNamesTheRulesThatRun) {
  const report::Run run = hanging_run(2);
  const std::string out = printed({.progress = true}, [&](Console& console) {
    console.begin(Document{}, run, 3);
    console.started("XF-10");
    console.started("XF-11");
    console.rule(run.rules[0]);
  });
  EXPECT_THAT(out, HasSubstr("] 0/3: XF-10 XF-11"));
  EXPECT_THAT(out, HasSubstr("] 1/3, 1 failed: XF-11"));
}

TEST(Console, RowsFitIntoEightyColumns) {
  report::Run run = hanging_run(60);
  for (RuleResult& rule : run.rules) {
    rule.title = "a send for a later group waits and blocks no other send";
    rule.text = std::string(70, 'a') + ' ' + std::string(70, 'b');
    rule.seconds = 99.99;
    rule.ranks.clear();
  }
  for (const std::string& line : lines_of(printed_run({.durations = 10}, run))) EXPECT_LE(line.size(), 80u) << line;
}

TEST(Console, FoldsAndShortensTheLog) {
  report::Run run;
  run.rules = {failure()};
  std::vector<std::string>& log = run.rules[0].ranks[0].log;
  log.assign(124, "INFO retry");
  for (int i = 0; i < 100; ++i) log.push_back("INFO step " + std::to_string(i));
  const std::string out = printed_run({}, run);
  EXPECT_THAT(out, HasSubstr("    INFO retry (repeated 124 times)\n    INFO step 0\n"));
  EXPECT_THAT(
      out, HasSubstr("    INFO step 8\n    … 61 lines only in the files of --json and --html …\n    INFO step 70\n"));
}

TEST(Console, ShowsTheClause) {
  report::Run run;
  run.rules = {failure()};
  run.rules[0].text = "A group is done only when all buffers are filled.";
  run.rules[0].source = "net.cc";
  EXPECT_THAT(printed_run({}, run),
              HasSubstr("  requires: A group is done only when all buffers are filled. (source: net.cc)\n"));
}

TEST(Console, SaysWhyNoRocePacketWasSent) {
  const auto end = [](const Transport& transport) {
    report::Run run;
    run.plugin_name = "foo";
    run.rules = {failure()};
    run.rules.front().verdict = Verdict::kPass;
    run.transport = transport;
    return printed({}, [&](Console& console) { console.end(run); });
  };
  EXPECT_THAT(end({}), HasSubstr("no RoCE packet was sent: the plugin loads no libibverbs\n"));
  EXPECT_THAT(end({.verbs_library = "/usr/lib/libibverbs.so.1"}),
              HasSubstr("warning: no RoCE packet was sent: the plugin loads /usr/lib/libibverbs.so.1, not\n"
                        "the NIC's libibverbs: link it without an RPATH\n"));
  EXPECT_THAT(end({.verbs_library = "/nic/libibverbs.so.1", .is_nic = true}),
              HasSubstr("warning: no RoCE packet was sent: the plugin loads the NIC's libibverbs but does\n"
                        "not send through it: its log may say why\n"));
  EXPECT_THAT(end({.verbs_library = "/nic/libibverbs.so.1", .is_nic = true, .packets = 3}), Not(HasSubstr("RoCE")));
}

TEST(Style, ColorFollowsTheOptionThenTheEnvironment) {
  const auto color_with = [](const char* no_color, const char* force_color, const char* option) {
    setenv("NO_COLOR", no_color, 1);
    setenv("FORCE_COLOR", force_color, 1);
    std::FILE* const file = std::tmpfile();  // no terminal
    const bool color = Style::of(file, option).color;
    std::fclose(file);
    unsetenv("NO_COLOR");
    unsetenv("FORCE_COLOR");
    return color;
  };
  EXPECT_FALSE(color_with("", "", "auto"));
  EXPECT_TRUE(color_with("", "1", "auto"));
  EXPECT_FALSE(color_with("1", "1", "auto"));
  EXPECT_TRUE(color_with("1", "", "always"));
  EXPECT_FALSE(color_with("", "1", "never"));
}

TEST(Console, PrintsARowForAFailure) {
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
  run.rules[0].nics = {{"a.eth0", {{"unknown_queue_pairs", 3}, {"timeouts", 1}}}};
  run.faults = {{.fault = "link a-b down", .source = "f.yaml:2", .rule = "XF-26", .start = 1.5, .end = 1.6}};
  run.missed_faults = {{.fault = "host b killed", .source = "f.yaml:3", .reason = "XF-26 made 2 such calls"}};
  run.ineffective_faults = {{.fault = "loss 1% on link a-c", .source = "f.yaml:4", .reason = "no rule uses it"}};
  const std::string out = printed({}, [&](Console& console) { console.end(run); });
  EXPECT_THAT(out, HasSubstr("fault     1.500 to   1.600 s  link a-b down (f.yaml:2, XF-26)\n"));
  EXPECT_THAT(out, HasSubstr("error   fault host b killed (f.yaml:3) never started: XF-26 made 2 such calls\n"));
  EXPECT_THAT(out, HasSubstr("warning loss 1% on link a-c had no effect (f.yaml:4):\n        no rule uses it\n"));
  EXPECT_THAT(out, HasSubstr("  fault 0.100 to 0.200 s: link a-b down (f.yaml:2)\n"));
  EXPECT_THAT(out, HasSubstr("  NIC a.eth0: unknown queue pairs 3, timeouts 1\n"));
}

TEST(Console, SummarizesRulesWithoutVerdict) {
  report::Run run;
  run.rules = {failure()};
  for (int i = 1; i <= 10; ++i) {
    RuleResult& rule = run.rules.emplace_back();
    rule.id = "CN-" + std::to_string(i);
    rule.message = "the rule has reported no verdict";
  }
  const std::string out = printed({}, [&](Console& console) { console.end(run); });
  EXPECT_THAT(out,
              HasSubstr("\nMISSING 10 of 11 rules without a verdict: CN-1, CN-2, CN-3, CN-4, CN-5, CN-6, CN-7, CN-8 "
                        "and 2 more\n"));
  EXPECT_EQ(count_of(out, "\n        the rule has reported no verdict\n"), 1u);
}

TEST(Console, ReplacesControlCharactersOfPlugins) {
  report::Run run;
  run.rules = {failure()};
  EXPECT_THAT(printed({}, [&](Console& console) { console.end(run); }), HasSubstr("    ?[2Jbye\n"));
}

TEST(Console, PrintsPlainTextWithoutATerminal) {
  const std::string out = printed({}, [](Console& console) { console.rule(failure()); });
  EXPECT_THAT(out, Not(HasSubstr("\033")));
  EXPECT_THAT(printed({.color = true}, [](Console& console) { console.rule(failure()); }), HasSubstr("\033[31mfail"));
}

namespace {

RuleResult failed_rule(const char* id) {
  RuleResult rule;
  rule.id = id;
  rule.message = "wrote nothing\nat all";
  return rule;
}

}  // namespace

TEST(Console, NamesSurvivingMutants) {
  const MutantResult mutant = {.name = "connect_waits",
                               .rules = {"CN-06"},
                               .killed = false,
                               .killed_by = {},
                               .undeclared = {"DP-01"},
                               .seconds = 1,
                               .evidence = {failed_rule("DP-01"), failed_rule("CN-06")}};
  const std::string out = printed({}, [&](Console& console) {
    console.mutant(mutant);
    console.end({mutant}, 1);
  });
  EXPECT_THAT(out, HasSubstr("SURVIVED connect_waits"));
  EXPECT_THAT(out, HasSubstr("DP-01 failed, which the mutant does not declare: wrote nothing\n"));
  EXPECT_THAT(out, HasSubstr("0 of 1 mutant killed"));
}

TEST(Console, CountsMutantsThatDeclareNoneOfTheRulesApart) {
  MutantResult killed, other, failed;
  killed.name = "a";
  killed.rules = killed.killed_by = {"CN-06"};
  other.name = "b";
  failed.name = "c";
  failed.undeclared = {"CN-06"};
  killed.killed = other.killed = failed.killed = true;
  const std::string out = printed({}, [&](Console& console) {
    console.mutant(killed);
    console.mutant(other);
    console.mutant(failed);
    console.end({killed, other}, 1);
  });
  EXPECT_THAT(out, HasSubstr("killed   a "));
  EXPECT_THAT(out, HasSubstr("passed   b "));
  EXPECT_THAT(out, HasSubstr("failed   c "));
  EXPECT_THAT(out, HasSubstr("\n1 of 1 mutant killed; 1 other mutant ran in 1.0 s\n"));
}

TEST(Console, ListsTheMutantsThatEachRuleCaught) {
  std::vector<MutantResult> mutants(2);
  mutants[0].name = "connect_waits";
  mutants[0].killed_by = {"CN-06"};
  mutants[1].name = "accept_waits";
  mutants[1].killed_by = {"CN-06", "CN-07"};
  mutants[1].rules = {"CN-07", "CN-09"};
  EXPECT_THAT(printed({}, [&](Console& console) { console.kill_table(mutants); }),
              HasSubstr("CN-06   2  connect_waits, accept_waits\n"
                        "CN-07   1  accept_waits\n"
                        "CN-09   0  \n"));
}

}  // namespace
}  // namespace plugfest::report
