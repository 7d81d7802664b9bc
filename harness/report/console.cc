#include "harness/report/console.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <utility>

#include "fabric/system/text.h"
#include "harness/report/text.h"

namespace plugfest::report {
namespace {

// Up to this number, good rules get rows.
constexpr std::size_t kFewRules = 10;

// Column of the messages below a row.
constexpr std::size_t kMessageIndent = 8;

std::string_view color_of(Verdict verdict) {
  if (is_bad(verdict)) return kRed;
  if (verdict == Verdict::kPass) return kGreen;
  return verdict == Verdict::kWarn || verdict == Verdict::kWaived ? kYellow : kDim;
}

std::string indented(std::string_view text, std::string_view indent) {
  std::string out;
  for (const std::string& line : lines_of(text)) out += fmt::format("{}{}\n", indent, printable(line));
  return out;
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::toupper(c); });
  return out;
}

// Folds equal consecutive lines, and omits the middle of many lines.
std::string shortened(const std::vector<std::string>& lines) {
  constexpr std::size_t kFirst = 10, kLast = 30;
  std::vector<std::string> folded;
  for (std::size_t i = 0; i < lines.size();) {
    std::size_t end = i;
    while (end < lines.size() && lines[end] == lines[i]) ++end;
    folded.push_back(printable(lines[i]));
    if (end - i > 1) folded.back() += fmt::format(" (repeated {} times)", end - i);
    i = end;
  }
  std::string out;
  for (std::size_t i = 0; i < folded.size(); ++i) {
    if (folded.size() > kFirst + kLast && i == kFirst) {
      const std::size_t next = folded.size() - kLast;
      out += fmt::format("    … {} only in the files of --json and --html …\n", counted(next - i, "line"));
      i = next;
    }
    out += fmt::format("    {}\n", folded[i]);
  }
  return out;
}

// `text` in lines of at most 80 columns that start with `indent` spaces.
std::string paragraph(std::string_view text, std::size_t indent) {
  return std::string(indent, ' ') + wrapped(printable(text), indent) + '\n';
}

// Why at least half of the rules of a group do not apply, if they have one reason; empty otherwise.
std::string reason_of_not_applicable(const Run& run, std::string_view letters, std::size_t total) {
  std::map<std::string_view, std::size_t> rules;  // by reason
  for (const RuleResult& rule : run.rules)
    if (rule.verdict == Verdict::kNotApplicable && rule.id.starts_with(letters)) ++rules[first_line(rule.message)];
  for (const auto& [reason, count] : rules)
    if (count > 1 && 2 * count >= total) return fmt::format("{} n/a: {}", count, reason);
  return "";
}

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

Style Style::of(std::FILE* stream, std::string_view color) {
  const char* terminal = std::getenv("TERM");
  const bool smart = isatty(fileno(stream)) != 0 && (terminal == nullptr || std::strcmp(terminal, "dumb") != 0);
  const char* forced = std::getenv("FORCE_COLOR");
  const bool is_forced = forced != nullptr && *forced != '\0' && std::strcmp(forced, "0") != 0;
  const bool colored = color == "auto" ? !is_set("NO_COLOR") && (smart || is_forced) : color == "always";
  return {.color = colored, .progress = smart};
}

std::string Console::paint(std::string_view color, std::string_view text) const {
  return style_.color ? painted(color, text) : std::string(text);
}

void Console::print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
}

void Console::pause() {
  if (shown_) print("\r\033[K");
  shown_ = false;
}

void Console::refresh() {
  if (!style_.progress || progress_.is_complete()) return;
  print("\r\033[K" + progress_.line().substr(0, kColumns - 1));
  shown_ = true;
}

std::string Console::progress_text() const {
  if (progress_.is_complete()) return "";
  std::string text = progress_.counts();
  const auto largest = std::max_element(causes_.begin(), causes_.end(),
                                        [](const auto& one, const auto& other) { return one.size() < other.size(); });
  if (largest != causes_.end() && largest->size() > 1) {
    const std::vector<CauseGroup> groups = group_by_cause(*largest);
    if (!groups.empty()) text += fmt::format(" ({})", printable(groups.front().text));
  }
  return text + progress_.time_left();
}

void Console::begin(const Document& document, const Run& run, std::size_t rules) {
  progress_ = Progress(rules);
  causes_.clear();
  any_cut_short_ = false;
  if (style_.detail != Detail::kQuiet) {
    std::string line = fmt::format("plugfest {}: {} {} ({}),", document.version,
                                   run.plugin_name.empty() ? "plugin" : printable(run.plugin_name), run.version_text(),
                                   run.plugin_path);
    const std::string layout =
        document.environment.layout.empty() ? "" : fmt::format(" ({})", document.environment.layout);
    std::size_t column = columns(line);
    for (const std::string& part : {counted(rules, "rule") + ',', document.environment.topology + ',',
                                    fmt::format("NIC {}{},", document.environment.nic, layout),
                                    document.environment.kernel + ',', fmt::format("seed {}", run.seed)}) {
      const bool fits = column + 1 + columns(part) <= kColumns;
      line += (fits ? " " : "\n  ") + part;
      column = (fits ? column + 1 : 2) + columns(part);
    }
    print(line + '\n');
    if (document.release) release(*document.release, run, document.runs.empty());
    devices(run);
  }
  refresh();
}

void Console::release(const ReleaseRecord& release, const Run& run, bool first) {
  print(fmt::format("  nccl {} loads {} v{} of this library\n", release.nccl, run.interface, run.api));
  for (const std::string& unused : release.unused)
    if (first) print(fmt::format("  NCCL {} will not use {}\n", release.nccl, unused));
}

void Console::devices(const Run& run) {
  constexpr std::size_t kShown = 32;
  const auto by_name = [](const DeviceRecord& device) { return device.found_by == "name"; };
  if (std::all_of(run.devices.begin(), run.devices.end(), by_name)) return;
  std::string table = fmt::format("  {:<16} {:<16} found by\n", "interface", "device");
  for (std::size_t i = 0; i < std::min(run.devices.size(), kShown); ++i) {
    const DeviceRecord& device = run.devices[i];
    table += fmt::format("  {:<16} {:<16} {}\n", device.interface,
                         fmt::format("{}: {}", device.index, printable(device.device)), device.found_by);
  }
  if (run.devices.size() > kShown) table += fmt::format("  and {} more\n", run.devices.size() - kShown);
  print(table + "  if one is wrong: --device NAME=HOST/INTERFACE\n");
}

void Console::started(const std::string& id) {
  progress_.start(id);
  refresh();
}

const std::vector<RuleResult>& Console::add_to_cause(const RuleResult& rule) {
  auto cause =
      std::find_if(causes_.begin(), causes_.end(), [&](const auto& rules) { return same_cause(rules.front(), rule); });
  if (cause == causes_.end()) cause = causes_.insert(causes_.end(), std::vector<RuleResult>());
  cause->emplace_back(rule).ranks.clear();
  return *cause;
}

void Console::shared_cause(const std::vector<RuleResult>& cause) {
  const std::vector<CauseGroup> groups = cause.size() == 2 ? group_by_cause(cause) : std::vector<CauseGroup>();
  if (!groups.empty()) {
    const std::string line = fmt::format("So far, {}; start with {}", groups.front().text, groups.front().start->id);
    print(paint(kRed, wrapped(printable(line))) + '\n');
  }
  if (!cause.back().cut_short || std::exchange(any_cut_short_, true)) return;
  print(paint(kYellow,
              wrapped(
                  "From now on, calls that hang there get less time; --patient gives each call its full time limit.")) +
        '\n');
}

void Console::rule(const RuleResult& rule) {
  pause();
  progress_.end(rule.id, is_bad(rule.verdict));
  const bool good = is_good(rule.verdict) && rule.known.empty();
  const std::vector<RuleResult>* const cause = good ? nullptr : &add_to_cause(rule);
  // In kNormal a rule gets no row if its result is as expected, nor if an earlier row has reported its cause.
  const bool worth_a_row = good ? style_.only_run && progress_.total() <= kFewRules : cause->size() == 1;
  if (style_.detail == Detail::kVerbose || (style_.detail == Detail::kNormal && worth_a_row)) {
    const std::string verdict = fmt::format("{:<7}", text(rule.verdict));
    print(fmt::format("{} {:<5}  {:<56} {:5.2f} s\n", paint(color_of(rule.verdict), verdict), rule.id, rule.title,
                      rule.seconds));
    const bool has_message = rule.verdict != Verdict::kPass && !rule.message.empty();
    if (has_message) print(paint(kDim, paragraph(first_line(rule.message), kMessageIndent)));
    if (!rule.known.empty()) print(paint(kYellow, paragraph(first_line(rule.known), kMessageIndent)));
  }
  if (cause != nullptr && style_.detail != Detail::kQuiet) shared_cause(*cause);
  refresh();
}

void Console::details(const RuleResult& rule) {
  std::string out =
      fmt::format("\n{} {}  {}\n", paint(color_of(rule.verdict), upper(text(rule.verdict))), rule.id, rule.title);
  out += indented(rule.message, "  ");
  if (!rule.text.empty())
    out += paint(kDim, paragraph(fmt::format("requires: {} (source: {})", rule.text, rule.source), 2));
  for (const FaultRecord& fault : rule.faults)
    out += fmt::format("  fault {:.3f} to {:.3f} s: {} ({})\n", fault.start, fault.end, fault.fault, fault.source);
  for (const NicRecord& nic : rule.nics) out += indented(nic_text(nic), "  ");
  for (const RankRecord& rank : rule.ranks) {
    if (!rank.last_calls.empty()) out += fmt::format("  rank {}, last calls:\n", rank.name);
    for (const std::string& call : rank.last_calls) out += indented(call, "    ");
    if (!rank.log.empty()) out += fmt::format("  rank {}, the plugin's log:\n{}", rank.name, shortened(rank.log));
    if (!rank.output.empty()) out += fmt::format("  rank {}, output:\n{}", rank.name, shortened(lines_of(rank.output)));
  }
  if (!rule.rerun.empty()) out += fmt::format("  again:  {}\n", rule.rerun);
  print(out);
}

void Console::faults(const Run& run) {
  if (!run.faults.empty()) print("\n");
  for (const FaultRecord& fault : run.faults) {
    const std::string where = fault.rule.empty() ? fault.source : fmt::format("{}, {}", fault.source, fault.rule);
    print(fmt::format("{} {:7.3f} to {:7.3f} s  {} ({})\n", paint(kDim, "fault  "), fault.start, fault.end, fault.fault,
                      printable(where)));
  }
  for (const MissedFault& missed : run.missed_faults) {
    print(fmt::format("{} fault {} ({}) never started: {}\n", paint(kRed, "error  "), missed.fault,
                      printable(missed.source), missed.reason));
  }
  for (const MissedFault& fault : run.ineffective_faults) {
    print(fmt::format("{} {} had no effect ({}):\n        {}\n", paint(kYellow, "warning"), fault.fault,
                      printable(fault.source), fault.reason));
  }
}

void Console::missing(const Run& run) {
  constexpr std::size_t kNamed = 8;
  std::map<std::string, std::vector<std::string>> ids;  // by reason
  for (const RuleResult& rule : run.rules)
    if (rule.verdict == Verdict::kMissing) ids[std::string(first_line(rule.message))].push_back(rule.id);
  for (const auto& [reason, rules] : ids) {
    const std::size_t named = std::min(rules.size(), kNamed);
    std::string names =
        fmt::format("{}", fmt::join(rules.begin(), rules.begin() + static_cast<std::ptrdiff_t>(named), ", "));
    if (rules.size() > named) names += fmt::format(" and {} more", rules.size() - named);
    print(fmt::format("\n{} {} of {} without a verdict: {}\n{}", paint(kRed, "MISSING"), rules.size(),
                      counted(run.rules.size(), "rule"), names, paragraph(reason, kMessageIndent)));
  }
}

// Prints the failed rules in few lines.
void Console::failed_rules(const std::vector<CauseGroup>& groups) {
  if (groups.empty() || (groups.size() == 1 && groups.front().rules.size() == 1 && style_.detail != Detail::kQuiet))
    return;
  print("\nfailed:\n");
  for (const CauseGroup& group : groups) {
    const RuleResult& start = *group.start;
    const std::string verdict = paint(color_of(start.verdict), fmt::format("{:<7}", text(start.verdict)));
    if (group.rules.size() == 1) {
      print(fmt::format("{} {}  {}\n", verdict, start.id, start.title));
      continue;
    }
    std::string line = group.headline() + ':';
    for (const RuleResult* rule : group.rules) line += ' ' + rule->id;
    print(fmt::format("{} {}\n", verdict, wrapped(printable(line), kMessageIndent)));
  }
}

// Prints the verdicts of each part of the contract.
void Console::groups(const Run& run) {
  std::vector<std::pair<const RuleResult*, Summary>> groups;  // key: the first rule of each group
  const auto letters = [](const RuleResult& rule) { return std::string_view(rule.id).substr(0, rule.id.find('-')); };
  for (const RuleResult& rule : run.rules) {
    const auto same = [&](const auto& group) { return letters(*group.first) == letters(rule); };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) group = groups.insert(groups.end(), {&rule, Summary{}});
    group->second.add(rule);
  }
  for (const auto& [first, verdicts] : groups) {
    const bool good =
        verdicts.of(Verdict::kPass) + verdicts.of(Verdict::kInfo) + verdicts.of(Verdict::kNotApplicable) ==
        verdicts.total();
    print(fmt::format("{}  {:<30} {}\n", letters(*first), first->group,
                      paint(good ? kGreen : kYellow, verdicts.describe())));
    const std::string reason = reason_of_not_applicable(run, letters(*first), verdicts.total());
    if (!reason.empty()) print(paint(kDim, paragraph(reason, 4)));
  }
}

void Console::slowest(const Run& run) {
  std::vector<const RuleResult*> rules;
  for (const RuleResult& rule : run.rules) rules.push_back(&rule);
  std::stable_sort(rules.begin(), rules.end(),
                   [](const auto* one, const auto* other) { return one->seconds > other->seconds; });
  if (rules.size() > style_.durations) rules.resize(style_.durations);
  if (!rules.empty()) print("\nslowest:\n");
  for (const RuleResult* rule : rules)
    print(fmt::format("{:7.2f} s  {:<5}  {}\n", rule->seconds, rule->id, rule->title));
}

void Console::transport(const Run& run) {
  const auto moves_messages = [](const RuleResult& rule) {
    return rule.verdict == Verdict::kPass && (rule.id.starts_with("XF") || rule.id.starts_with("TS"));
  };
  if (!run.transport || run.transport->packets != 0 || !std::any_of(run.rules.begin(), run.rules.end(), moves_messages))
    return;
  const Transport& transport = *run.transport;
  if (transport.verbs_library.empty()) {
    if (style_.detail != Detail::kQuiet) print("no RoCE packet was sent: the plugin loads no libibverbs\n");
    return;
  }
  const std::string reason =
      transport.is_nic ? "the plugin loads the NIC's libibverbs but does not send through it: its log may say why"
                       : fmt::format("the plugin loads {}, not the NIC's libibverbs: link it without an RPATH",
                                     printable(transport.verbs_library));
  print(paint(kYellow, wrapped(fmt::format("warning: no RoCE packet was sent: {}", reason))) + '\n');
}

void Console::end(const Run& run) {
  pause();
  faults(run);
  const std::vector<CauseGroup> causes = group_by_cause(run.rules);
  for (const CauseGroup& cause : causes) {
    if (style_.detail == Detail::kQuiet) break;
    if (cause.rules.size() > 1) print('\n' + paint(kRed, wrapped(printable(cause.headline()))) + '\n');
    for (const RuleResult* rule : cause.rules)
      if (rule == cause.start || style_.detail == Detail::kVerbose) details(*rule);
  }
  missing(run);
  Summary summary;
  for (const RuleResult& rule : run.rules) summary.add(rule);
  const bool counted = style_.only_run && style_.detail == Detail::kNormal && run.rules.size() > kFewRules;
  if (counted && summary.exit_code() == 0) groups(run);
  slowest(run);
  transport(run);
  failed_rules(causes);
  const std::string name = run.plugin_name.empty() ? run.plugin_path : printable(run.plugin_name);
  print(fmt::format("{}{} {}: {} in {:.1f} s; idle ranks used {:.2f}% CPU\n",
                    style_.detail == Detail::kQuiet ? "" : "\n", name, run.version_text(),
                    paint(summary.exit_code() == 0 ? kGreen : kRed, summary.describe()), run.seconds,
                    run.idle_cpu_share * 100));
}

void Console::flakes(std::span<const Run> runs) {
  for (const Flake& flake : find_flakes(runs)) {
    print(fmt::format("{} {} v{}: {} in {} runs with one seed\n", paint(kYellow, "flaky"), flake.id, flake.api,
                      flake.verdicts.describe(), flake.verdicts.total()));
  }
}

void Console::mutant(const MutantResult& mutant) {
  std::string rules;
  for (const std::string& id : mutant.rules) {
    const bool by = std::find(mutant.killed_by.begin(), mutant.killed_by.end(), id) != mutant.killed_by.end();
    rules += fmt::format(" {}{}", by ? "" : "-", id);
  }
  const bool good = mutant.killed && mutant.undeclared.empty();
  // With --rule, it may be that no declared rule ran.
  const char* outcome = mutant.killed ? "killed" : "SURVIVED";
  if (mutant.rules.empty()) outcome = good ? "passed" : "failed";
  print(fmt::format("{} {:<34} {:<24} {:6.2f} s\n", paint(good ? kGreen : kRed, fmt::format("{:<8}", outcome)),
                    mutant.name, rules.empty() ? rules : rules.substr(1), mutant.seconds));
  for (const RuleResult& rule : mutant.evidence) {
    if (std::find(mutant.undeclared.begin(), mutant.undeclared.end(), rule.id) == mutant.undeclared.end()) continue;
    print(fmt::format("         {} failed, which the mutant does not declare: {}\n", paint(kRed, rule.id),
                      first_line(rule.message)));
  }
}

void Console::kill_table(const std::vector<MutantResult>& mutants) {
  std::map<std::string, std::vector<std::string>> killed;
  for (const MutantResult& mutant : mutants) {
    for (const std::string& id : mutant.rules) killed[id];
    for (const std::string& id : mutant.killed_by) killed[id].push_back(mutant.name);
  }
  print("\nrule   mutants that it killed\n");
  for (const auto& [id, names] : killed) {
    print(fmt::format("{}  {:>2}  {}\n", names.empty() ? paint(kRed, id) : id, names.size(),
                      wrapped(fmt::format("{}", fmt::join(names, ", ")), 11)));
  }
}

void Console::end(const std::vector<MutantResult>& mutants, double seconds) {
  const auto bad = [](const MutantResult& mutant) { return !mutant.killed || !mutant.undeclared.empty(); };
  for (const MutantResult& mutant : mutants) {
    if (!bad(mutant)) continue;
    print(fmt::format("\n{} {}\n", mutant.killed ? "also fails undeclared rules:" : "survived:", mutant.name));
    for (const RuleResult& rule : mutant.evidence) {
      const bool is_undeclared =
          std::find(mutant.undeclared.begin(), mutant.undeclared.end(), rule.id) != mutant.undeclared.end();
      const bool must_kill = std::find(mutant.rules.begin(), mutant.rules.end(), rule.id) != mutant.rules.end();
      if (is_undeclared || (must_kill && !mutant.killed)) details(rule);
    }
  }
  const auto count = [&](bool (*wanted)(const MutantResult&)) {
    return static_cast<std::size_t>(std::count_if(mutants.begin(), mutants.end(), wanted));
  };
  const std::size_t killed = count([](const auto& mutant) { return mutant.killed && !mutant.rules.empty(); });
  const std::size_t others = count([](const auto& mutant) { return mutant.rules.empty(); });
  print(fmt::format("\n{} of {} killed{} in {:.1f} s\n", killed, counted(mutants.size() - others, "mutant"),
                    others == 0 ? "" : fmt::format("; {} ran", counted(others, "other mutant")), seconds));
}

}  // namespace plugfest::report
