#include "harness/report/formats/html.h"

#include <fmt/format.h>

#include <string_view>

#include "harness/report/cause.h"
#include "harness/report/formats/html_style.h"
#include "harness/report/formats/markup.h"
#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

/// The verdict as a CSS class: "na" for "n/a".
std::string class_of(Verdict verdict) { return verdict == Verdict::kNotApplicable ? "na" : std::string(text(verdict)); }

std::string_view level_text(char level) {
  switch (level) {
    case 'M':
      return "NCCL misbehaves if it is broken";
    case 'S':
      return "should hold; a warning, with --strict a failure";
    default:
      return "for information";
  }
}

std::string lines(std::string_view heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return fmt::format("<h3>{}</h3><pre>{}</pre>", escaped(heading), escaped(text));
}

std::string faults_html(const std::vector<FaultRecord>& faults) {
  std::string out;
  for (const FaultRecord& fault : faults) {
    out += fmt::format("<p class=\"warn\">fault {:.3f} to {:.3f} s: {} <span class=\"dim\">({}{})</span></p>\n",
                       fault.start, fault.end, escaped(fault.fault), escaped(fault.source),
                       fault.rule.empty() ? "" : ", " + escaped(fault.rule));
  }
  return out;
}

std::string records(const RuleResult& rule) {
  std::string out;
  for (const RankRecord& rank : rule.ranks) {
    out += lines("rank " + rank.name + ", last calls", rank.last_calls);
    out += lines("rank " + rank.name + ", the plugin's log", rank.log);
    if (!rank.output.empty()) out += lines("rank " + rank.name + ", output", {rank.output});
  }
  return out;
}

std::string link_to(const Run& run, const RuleResult& rule) {
  return fmt::format("<a href=\"#v{}-{}\">{}</a>", run.api, rule.id, rule.id);
}

/// `shared`: the group of rules with the same cause; null if there is none. Only its first rule is expanded.
std::string rule_html(const Run& run, const RuleResult& rule, const CauseGroup* shared) {
  const std::string name = class_of(rule.verdict);
  std::string out = fmt::format(
      "<details class=\"rule\" id=\"v{}-{}\" data-verdict=\"{}\"{}><summary><span class=\"verdict {}\">{}</span>"
      "<span class=\"id\">{}</span><span class=\"title\">{}</span><span class=\"seconds\">{:.2f} s</span></summary>"
      "<div class=\"body\">",
      run.api, rule.id, name, is_bad(rule.verdict) && (shared == nullptr || shared->start == &rule) ? " open" : "",
      name, text(rule.verdict), rule.id, escaped(rule.title), rule.seconds);
  if (!rule.text.empty()) {
    out += fmt::format("<div class=\"clause\">{}<p class=\"dim\">[{}] {}. Source: {}</p></div>", escaped(rule.text),
                       rule.level, level_text(rule.level), escaped(rule.source));
  }
  if (!rule.known.empty()) out += fmt::format("<p class=\"warn\">{}</p>", escaped(rule.known));
  if (shared != nullptr && shared->start != &rule) {
    out += fmt::format("<p>{}: see {}</p>", escaped(shared->text), link_to(run, *shared->start));
  }
  if (!rule.message.empty()) out += fmt::format("<pre>{}</pre>", escaped(rule.message));
  out += faults_html(rule.faults);
  if (!rule.path.empty()) out += fmt::format("<p class=\"dim\">ran on {}</p>", escaped(rule.path));
  out += records(rule);
  if (!rule.rerun.empty()) out += fmt::format("<h3>again</h3><pre class=\"again\">{}</pre>", escaped(rule.rerun));
  return out + "</div></details>\n";
}

std::string field(std::string_view name, std::string_view value) {
  return value.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>", name, escaped(value));
}

std::string run_html(const Run& run) {
  Summary summary;
  for (const RuleResult& rule : run.rules) summary.add(rule);
  std::string out = fmt::format("<h2>{} v{}: <span class=\"{}\">{}</span></h2><dl>", escaped(run.plugin_name), run.api,
                                summary.exit_code() == 0 ? "pass" : "fail", summary.describe());
  out += field("plugin", run.plugin_path) + field("seed", fmt::format("{}", run.seed)) +
         field("took", fmt::format("{:.1f} s; idle ranks used {:.2f}% CPU", run.seconds, run.idle_cpu_share * 100));
  out += "</dl>\n" + faults_html(run.faults);
  for (const MissedFault& missed : run.missed_faults) {
    out += fmt::format("<p class=\"fail\">fault {} ({}) never started: {}</p>\n", escaped(missed.fault),
                       escaped(missed.source), escaped(missed.reason));
  }
  const std::vector<CauseGroup> causes = group_by_cause(run.rules);
  for (const CauseGroup& cause : causes) {
    if (cause.rules.size() < 2) continue;
    out += fmt::format("<p class=\"fail\">{}; start with {}</p>\n<p class=\"dim\">", escaped(cause.text),
                       link_to(run, *cause.start));
    for (const RuleResult* rule : cause.rules) out += link_to(run, *rule) + ' ';
    out += "</p>\n";
  }
  for (const RuleResult& rule : run.rules) out += rule_html(run, rule, shared_cause(causes, rule));
  return out;
}

std::string loader_html(const Loader& loader) {
  return fmt::format("<h2 class=\"{}\">{}</h2><details><summary>NCCL's log</summary><pre>{}</pre></details>\n",
                     loader.deviation.empty() ? "pass" : "fail", escaped(describe(loader)), escaped(loader.log));
}

std::string filters(const Summary& summary) {
  std::string out = "<div class=\"filters\">";
  for (const Verdict verdict : kVerdicts) {
    if (summary.of(verdict) == 0) continue;
    out += fmt::format("<button type=\"button\" data-verdict=\"{}\" aria-pressed=\"false\" class=\"{}\">{} {}</button>",
                       class_of(verdict), class_of(verdict), summary.of(verdict), text(verdict));
  }
  return out + "<input type=\"search\" placeholder=\"find in rules\" aria-label=\"find in rules\"></div>\n";
}

}  // namespace

std::string to_html(const Document& document) {
  const Environment& environment = document.environment;
  const std::string title = document.runs.empty() ? "plugfest" : "plugfest: " + document.runs.front().plugin_name;
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{}</title><style>{}</style></head><body>\n<h1>{}</h1>\n",
      escaped(title), kStyle, escaped(title));
  out += fmt::format("<p class=\"dim\">plugfest {}{}, {}, NIC {}, {}, {}, {}</p>\n", escaped(document.version),
                     document.commit.empty() ? "" : " (" + escaped(document.commit) + ")",
                     escaped(environment.topology), escaped(environment.nic), escaped(environment.kernel),
                     escaped(environment.cpu), escaped(environment.privileges));
  if (document.stop_signal != 0) out += "<p class=\"fail\">Stopped before the end.</p>\n";
  out += filters(summarize(document.runs));
  if (document.loader) out += loader_html(*document.loader);
  for (const Flake& flake : find_flakes(document.runs))
    out += fmt::format("<p class=\"warn\">flaky: {} v{}: {}</p>\n", flake.id, flake.api, flake.verdicts.describe());
  for (const Run& run : document.runs) out += run_html(run);
  return out + fmt::format("<script>{}</script></body></html>\n", kScript);
}

}  // namespace plugfest::report
