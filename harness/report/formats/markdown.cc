#include "harness/report/formats/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "harness/report/cause.h"
#include "harness/report/formats/markup.h"
#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

constexpr std::size_t kMaxBytes = 900 << 10;
constexpr std::size_t kMaxMessageBytes = 4 << 10;
constexpr std::size_t kMaxCellBytes = 300;

std::string_view mark(Verdict verdict) {
  if (is_bad(verdict)) return "❌";
  return verdict == Verdict::kPass ? "✅" : verdict == Verdict::kWarn ? "⚠️" : "▫️";
}

/// The first line of `text`, escaped for a table cell.
std::string cell(std::string_view text) {
  std::string out;
  const std::string_view line = text.substr(0, std::min(text.find('\n'), kMaxCellBytes));
  for (const char c : escaped(line)) {
    if (c == '|' || c == '*' || c == '_' || c == '`' || c == '[') out += '\\';
    out += c;
  }
  return out;
}

std::string details(const RuleResult& rule) {
  const std::string_view message = std::string_view(rule.message).substr(0, kMaxMessageBytes);
  std::string out = fmt::format("<details><summary>{} <b>{}</b> {}</summary>\n\n<pre>{}</pre>\n", mark(rule.verdict),
                                rule.id, escaped(rule.title), escaped(message));
  for (const FaultRecord& fault : rule.faults) {
    out += fmt::format("\nfault {:.3f} to {:.3f} s: {} ({})\n", fault.start, fault.end, cell(fault.fault),
                       cell(fault.source));
  }
  if (!rule.text.empty()) out += fmt::format("\n{} <i>({})</i>\n", escaped(rule.text), escaped(rule.source));
  if (!rule.rerun.empty()) out += fmt::format("\n<pre>{}</pre>\n", escaped(rule.rerun));
  return out + "\n</details>\n";
}

void add_run(std::string& out, const Run& run) {
  Summary summary;
  for (const RuleResult& rule : run.rules) summary.add(rule);
  out += fmt::format("\n### {} {} v{}: {}\n\n", summary.exit_code() == 0 ? "✅" : "❌", cell(run.plugin_name), run.api,
                     summary.describe());
  for (const MissedFault& missed : run.missed_faults) {
    out += fmt::format("❌ fault {} ({}) never started: {}\n\n", cell(missed.fault), cell(missed.source),
                       cell(missed.reason));
  }
  const std::vector<CauseGroup> causes = group_by_cause(run.rules);
  for (const CauseGroup& cause : causes) {
    if (cause.rules.size() < 2) continue;
    out += fmt::format("- **{}**:", cell(cause.headline()));
    for (const RuleResult* rule : cause.rules) out += ' ' + rule->id;
    out += '\n';
  }
  if (!causes.empty() && causes.front().rules.size() > 1) out += '\n';
  std::vector<const RuleResult*> listed;
  for (const RuleResult& rule : run.rules) {
    const bool passed = rule.verdict == Verdict::kPass && rule.known.empty();
    const bool informational = rule.verdict == Verdict::kNotApplicable || rule.verdict == Verdict::kInfo;
    if (!passed && !informational) listed.push_back(&rule);
  }
  if (!listed.empty()) out += "| verdict | rule | | |\n|---|---|---|---|\n";
  std::size_t omitted = 0;
  const auto add = [&](const std::string& text) {
    if (out.size() + text.size() <= kMaxBytes) {
      out += text;
    } else {
      ++omitted;
    }
  };
  for (const RuleResult* rule : listed) {
    add(fmt::format("| {} {} | {} | {} | {} |\n", mark(rule->verdict), text(rule->verdict), rule->id, cell(rule->title),
                    cell(rule->known.empty() ? rule->message : rule->known)));
  }
  if (!listed.empty()) out += '\n';
  for (const RuleResult* rule : listed) {
    const CauseGroup* const shared = shared_cause(causes, *rule);
    if (is_bad(rule->verdict) && (shared == nullptr || shared->start == rule)) add(details(*rule));
  }
  if (omitted != 0) out += fmt::format("\n{} more lines and details do not fit here.\n", omitted);
}

}  // namespace

std::string to_markdown(const Document& document) {
  const Environment& environment = document.environment;
  std::string out = fmt::format("## plugfest {}\n\n{}, NIC {}, {}, {}\n", document.version, cell(environment.topology),
                                environment.nic, cell(environment.kernel), environment.privileges);
  if (document.stop_signal != 0) out += "\n**Stopped before the end.**\n";
  if (document.loader) {
    out += fmt::format("\n{} {}\n", document.loader->deviation.empty() ? "✅" : "❌", cell(describe(*document.loader)));
  }
  for (const Run& run : document.runs) add_run(out, run);
  for (const Flake& flake : find_flakes(document.runs))
    out += fmt::format("\n⚠️ flaky: {} v{}: {}\n", flake.id, flake.api, flake.verdicts.describe());
  return out;
}

}  // namespace plugfest::report
