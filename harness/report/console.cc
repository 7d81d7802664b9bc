#include "harness/report/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

constexpr std::string_view kRed = "31";
constexpr std::string_view kGreen = "32";
constexpr std::string_view kYellow = "33";
constexpr std::string_view kDim = "2";

std::string_view colour_of(Verdict verdict) {
  if (is_bad(verdict)) return kRed;
  if (verdict == Verdict::kPass) return kGreen;
  return verdict == Verdict::kWarn || verdict == Verdict::kWaived ? kYellow : kDim;
}

/// Replaces control characters by '?', because text from plugins may contain escape sequences.
std::string printable(std::string_view text) {
  std::string safe(text);
  for (char& c : safe) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) c = '?';
  }
  return safe;
}

std::string indented(std::string_view text, std::string_view indent) {
  std::string out;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) out += fmt::format("{}{}\n", indent, printable(line));
  return out;
}

std::string first_line(std::string_view text) { return printable(text.substr(0, text.find('\n'))); }

}  // namespace

Style Style::of(std::FILE* stream) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool smart = isatty(fileno(stream)) != 0 && (terminal == nullptr || std::strcmp(terminal, "dumb") != 0);
  return {.colour = smart && (no_colour == nullptr || *no_colour == '\0'), .progress = smart};
}

std::string Console::paint(std::string_view colour, std::string_view text) const {
  return style_.colour ? fmt::format("\033[{}m{}\033[0m", colour, text) : std::string(text);
}

void Console::print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
}

void Console::pause() {
  if (shown_) print("\r\033[K");
  shown_ = false;
}

void Console::progress() {
  if (!style_.progress || total_ == 0 || ended_ >= total_) return;
  constexpr std::size_t kWidth = 30;
  const std::size_t filled = kWidth * ended_ / total_;
  print(fmt::format("[{}{}] {}/{}", std::string(filled, '='), std::string(kWidth - filled, ' '), ended_, total_));
  shown_ = true;
}

void Console::begin(const Document& document, const Run& run, std::size_t rules) {
  total_ = rules;
  ended_ = 0;
  print(fmt::format("plugfest {}: {} v{} ({}), {} rules, {}, NIC {}{}, {}, seed {}\n", document.version,
                    run.plugin_name.empty() ? "plugin" : printable(run.plugin_name), run.api, run.plugin_path, rules,
                    document.environment.topology, document.environment.nic,
                    document.environment.layout.empty() ? "" : " (" + document.environment.layout + ")",
                    document.environment.kernel, run.seed));
  devices(run);
  progress();
}

void Console::devices(const Run& run) {
  constexpr std::size_t kShown = 32;
  const auto by_name = [](const DeviceRecord& device) { return device.found_by == "name"; };
  if (std::all_of(run.devices.begin(), run.devices.end(), by_name)) return;
  std::string table = fmt::format("  {:<16} {:<16} found by\n", "interface", "device");
  for (std::size_t i = 0; i < std::min(run.devices.size(), kShown); ++i) {
    const DeviceRecord& device = run.devices[i];
    table += fmt::format("  {:<16} {:<16} {}\n", device.interface, printable(device.device), device.found_by);
  }
  if (run.devices.size() > kShown) table += fmt::format("  and {} more\n", run.devices.size() - kShown);
  print(table + "  if one is wrong: --device NAME=HOST/INTERFACE\n");
}

void Console::loader(const Loader& loader) {
  const bool good = loader.deviation.empty();
  print(fmt::format("{}{}\n", good ? "" : paint(kRed, "fail   ") + " ", printable(describe(loader))));
  if (!good) print(indented(loader.log, "        "));
}

void Console::rule(const RuleResult& rule) {
  pause();
  ++ended_;
  const std::string verdict = fmt::format("{:<7}", text(rule.verdict));
  const bool has_details = rule.verdict != Verdict::kPass && !rule.message.empty();
  print(fmt::format("{} {:<6} {:<62} {:6.2f} s\n", paint(colour_of(rule.verdict), verdict), rule.id, rule.title,
                    rule.seconds));
  if (has_details) print(fmt::format("        {}\n", paint(kDim, first_line(rule.message))));
  if (!rule.known.empty()) print(fmt::format("        {}\n", paint(kYellow, first_line(rule.known))));
  progress();
}

void Console::details(const RuleResult& rule) {
  std::string upper(text(rule.verdict));
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string out = fmt::format("\n{} {}  {}\n", paint(colour_of(rule.verdict), upper), rule.id, rule.title);
  out += indented(rule.message, "  ");
  for (const FaultRecord& fault : rule.faults) {
    out += fmt::format("  fault {:.3f} to {:.3f} s: {} ({})\n", fault.start, fault.end, fault.fault, fault.source);
  }
  for (const RankRecord& rank : rule.ranks) {
    if (!rank.last_calls.empty()) out += fmt::format("  rank {}, last calls:\n", rank.name);
    for (const std::string& call : rank.last_calls) out += indented(call, "    ");
    if (!rank.log.empty()) out += fmt::format("  rank {}, the plugin's log:\n", rank.name);
    for (const std::string& line : rank.log) out += indented(line, "    ");
    if (!rank.output.empty()) out += fmt::format("  rank {}, output:\n{}", rank.name, indented(rank.output, "    "));
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
}

void Console::missing(const Run& run) {
  constexpr std::size_t kNamed = 8;
  std::vector<const RuleResult*> rules;
  for (const RuleResult& rule : run.rules) {
    if (rule.verdict == Verdict::kMissing) rules.push_back(&rule);
  }
  if (rules.empty()) return;
  std::string names;
  for (std::size_t i = 0; i < std::min(rules.size(), kNamed); ++i) names += (i == 0 ? "" : ", ") + rules[i]->id;
  if (rules.size() > kNamed) names += fmt::format(" and {} more", rules.size() - kNamed);
  print(fmt::format("\n{} {} of {} rules have no verdict: {}\n", paint(kRed, "MISSING"), rules.size(), run.rules.size(),
                    names));
}

void Console::end(const Run& run) {
  pause();
  faults(run);
  Summary summary;
  for (const RuleResult& rule : run.rules) {
    summary.add(rule);
    if (is_bad(rule.verdict) && rule.verdict != Verdict::kMissing) details(rule);
  }
  missing(run);
  const std::string_view colour = summary.exit_code() == 0 ? kGreen : kRed;
  print(fmt::format("\n{} v{}: {} in {:.1f} s; idle ranks used {:.2f}% CPU\n",
                    run.plugin_name.empty() ? run.plugin_path : printable(run.plugin_name), run.api,
                    paint(colour, summary.describe()), run.seconds, run.idle_cpu_share * 100));
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
  const bool good = mutant.killed && mutant.caught_wrongly.empty();
  print(fmt::format("{} {:<44} {:<30} {:6.2f} s\n",
                    paint(good ? kGreen : kRed, fmt::format("{:<8}", mutant.killed ? "killed" : "SURVIVED")),
                    mutant.name, rules.empty() ? rules : rules.substr(1), mutant.seconds));
  for (const std::string& id : mutant.caught_wrongly) {
    print(fmt::format("         {} also caught it, and should not\n", paint(kRed, id)));
  }
}

void Console::end(const std::vector<MutantResult>& mutants, double seconds) {
  const auto bad = [](const MutantResult& mutant) { return !mutant.killed || !mutant.caught_wrongly.empty(); };
  for (const MutantResult& mutant : mutants) {
    if (!bad(mutant)) continue;
    print(fmt::format("\n{} {}\n", mutant.killed ? "caught by other rules:" : "survived:", mutant.name));
    for (const RuleResult& rule : mutant.evidence) {
      const bool wrong =
          std::find(mutant.caught_wrongly.begin(), mutant.caught_wrongly.end(), rule.id) != mutant.caught_wrongly.end();
      const bool should_catch = std::find(mutant.rules.begin(), mutant.rules.end(), rule.id) != mutant.rules.end();
      if (wrong || (should_catch && !mutant.killed)) details(rule);
    }
  }
  const auto killed = std::count_if(mutants.begin(), mutants.end(), [](const auto& mutant) { return mutant.killed; });
  print(fmt::format("\n{} of {} mutants killed in {:.1f} s\n", killed, mutants.size(), seconds));
}

}  // namespace plugfest::report
