#include "harness/report/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "harness/report/text.h"
#include "harness/report/verdict.h"
#include "harness/wire/json.h"

namespace plugfest::report {
namespace {

// `shared`: the group of rules with the same cause; null if there is none.
std::string element(const RuleResult& rule, const CauseGroup* shared) {
  const std::string tag = [&] {
    switch (rule.verdict) {
      case Verdict::kFail:
      case Verdict::kCrash:
      case Verdict::kTimeout:
        return "failure";
      case Verdict::kError:
      case Verdict::kMissing:
        return "error";
      case Verdict::kSkip:
      case Verdict::kNotApplicable:
      case Verdict::kWaived:
        return "skipped";
      case Verdict::kPass:
      case Verdict::kWarn:
      case Verdict::kInfo:
        break;
    }
    return "";
  }();
  const std::string message =
      rule.known.empty() ? rule.message : rule.known + (rule.message.empty() ? "" : "\n" + rule.message);
  std::string inside;
  const std::string cause = shared == nullptr ? "" : "\ncause: " + shared->headline();
  if (!tag.empty()) {
    const std::string type = tag == "skipped" ? "" : fmt::format(" type=\"{}\"", text(rule.verdict));
    inside = fmt::format("      <{} message=\"{}\"{}>{}</{}>\n", tag, escaped(first_line(message)), type,
                         escaped(message + cause + (tag == "skipped" ? "" : "\nagain: " + rule.rerun)), tag);
  } else if (!message.empty()) {
    inside =
        fmt::format("      <system-out>{}</system-out>\n", escaped(fmt::format("{}: {}", text(rule.verdict), message)));
  }
  return fmt::format("    <testcase classname=\"plugfest.{}\" name=\"{} {}\" time=\"{:.3f}\">\n{}    </testcase>\n",
                     rule.id.substr(0, rule.id.find('-')), rule.id, escaped(rule.title), rule.seconds, inside);
}

std::string property(std::string_view name, std::string_view value) {
  return fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", name, escaped(value));
}

constexpr std::size_t kMaxBytes = 900 << 10;
constexpr std::size_t kMaxMessageBytes = 4 << 10;
constexpr std::size_t kMaxCellBytes = 300;

std::string_view mark(Verdict verdict) {
  if (is_bad(verdict)) return "❌";
  return verdict == Verdict::kPass ? "✅" : verdict == Verdict::kWarn ? "⚠️" : "▫️";
}

// The first line of `text`, escaped for a table cell.
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
    if (out.size() + text.size() <= kMaxBytes)
      out += text;
    else
      ++omitted;
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

std::string to_junit(const Document& document) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"plugfest\">\n";
  for (const Run& run : document.runs) {
    const std::vector<CauseGroup> causes = group_by_cause(run.rules);
    std::string cases;
    std::size_t failures = 0, errors = 0, skipped = 0;
    for (const RuleResult& rule : run.rules) {
      const std::string one = element(rule, shared_cause(causes, rule));
      failures += one.find("<failure ") != std::string::npos;
      errors += one.find("<error ") != std::string::npos;
      skipped += one.find("<skipped ") != std::string::npos;
      cases += one;
    }
    out += fmt::format(
        "  <testsuite name=\"{} v{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\">\n",
        escaped(run.plugin_name), run.api, run.rules.size(), failures, errors, skipped, run.seconds);
    out += "    <properties>\n" + property("plugin", run.plugin_path) + property("api", fmt::format("v{}", run.api)) +
           property("version", document.version) + property("kernel", document.environment.kernel) +
           property("nic", document.environment.nic) + property("topology", document.environment.topology) +
           property("seed", fmt::format("{}", run.seed)) + "    </properties>\n" + cases + "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

std::string to_markdown(const Document& document) {
  const Environment& environment = document.environment;
  std::string out = fmt::format("## plugfest {}\n\n{}, NIC {}, {}, {}\n", document.version, cell(environment.topology),
                                environment.nic, cell(environment.kernel), environment.privileges);
  if (document.stop_signal != 0) out += "\n**Stopped before the end.**\n";
  for (const Run& run : document.runs) add_run(out, run);
  for (const Flake& flake : find_flakes(document.runs))
    out += fmt::format("\n⚠️ flaky: {} v{}: {}\n", flake.id, flake.api, flake.verdicts.describe());
  return out;
}

std::string to_badge(const Document& document) {
  const Summary summary = summarize(document.runs);
  std::string subject;
  if (document.runs.size() == 1) {
    const Run& run = document.runs.front();
    subject = fmt::format("{} v{}: ", run.plugin_name, run.api);
  }
  const int code = exit_code(document);
  const char* const color = code == 1                         ? "red"
                            : code != 0                       ? "lightgrey"
                            : summary.of(Verdict::kWarn) != 0 ? "yellow"
                                                              : "brightgreen";
  return fmt::format("{{\"schemaVersion\": 1, \"label\": \"plugfest\", \"message\": {}, \"color\": \"{}\"}}\n",
                     wire::json_string(subject + summary.describe()), color);
}

}  // namespace plugfest::report
