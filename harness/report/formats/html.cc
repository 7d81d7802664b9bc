#include "harness/report/formats/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "fabric/system/text.h"
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

/// A run on the page.
struct Subject {
  const Run* run;
  const Environment* environment;
  /// Of the anchors of its rules: "v12-" for the first run of a version, "2-v12-" for the second.
  std::string anchor;
};

std::vector<Subject> subjects_of(std::span<const Document> documents) {
  std::vector<Subject> subjects;
  for (const Document& document : documents) {
    for (const Run& run : document.runs) {
      const auto before = std::count_if(subjects.begin(), subjects.end(),
                                        [&](const Subject& other) { return other.run->api == run.api; });
      subjects.push_back({&run, &document.environment,
                          fmt::format("{}v{}-", before == 0 ? "" : fmt::format("{}-", before + 1), run.api)});
    }
  }
  return subjects;
}

std::string link_to(const Subject& subject, const RuleResult& rule) {
  return fmt::format("<a href=\"#{}{}\">{}</a>", subject.anchor, rule.id, rule.id);
}

/// `shared`: the group of rules with the same cause; null if there is none. Only its first rule is expanded.
std::string rule_html(const Subject& subject, const RuleResult& rule, const CauseGroup* shared) {
  const std::string name = class_of(rule.verdict);
  std::string out = fmt::format(
      "<details class=\"rule\" id=\"{}{}\" data-verdict=\"{}\"{}><summary><span class=\"verdict {}\">{}</span>"
      "<span class=\"id\">{}</span><span class=\"title\">{}</span><span class=\"seconds\">{:.2f} s</span></summary>"
      "<div class=\"body\">",
      subject.anchor, rule.id, name,
      is_bad(rule.verdict) && (shared == nullptr || shared->start == &rule) ? " open" : "", name, text(rule.verdict),
      rule.id, escaped(rule.title), rule.seconds);
  if (!rule.text.empty()) {
    out += fmt::format("<div class=\"clause\">{}<p class=\"dim\">[{}] {}. Source: {}</p></div>", escaped(rule.text),
                       rule.level, level_text(rule.level), escaped(rule.source));
  }
  if (!rule.known.empty()) out += fmt::format("<p class=\"warn\">{}</p>", escaped(rule.known));
  if (shared != nullptr && shared->start != &rule) {
    out += fmt::format("<p>{}: see {}</p>", escaped(shared->text), link_to(subject, *shared->start));
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

std::string run_html(const Subject& subject) {
  const Run& run = *subject.run;
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
                       link_to(subject, *cause.start));
    for (const RuleResult* rule : cause.rules) out += link_to(subject, *rule) + ' ';
    out += "</p>\n";
  }
  for (const RuleResult& rule : run.rules) out += rule_html(subject, rule, shared_cause(causes, rule));
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

std::string environment_html(const Document& document) {
  const Environment& environment = document.environment;
  return fmt::format("<p class=\"dim\">plugfest {}{}, {}, NIC {}, {}, {}, {}</p>\n", escaped(document.version),
                     document.commit.empty() ? "" : " (" + escaped(document.commit) + ")",
                     escaped(environment.topology), escaped(environment.nic), escaped(environment.kernel),
                     escaped(environment.cpu), escaped(environment.privileges));
}

/// Rules and runs. Rules that passed everywhere share one line.
std::string matrix_html(const std::vector<Subject>& subjects) {
  std::string out = "<div class=\"matrix\"><table><thead><tr><th>rule</th>";
  for (const Subject& subject : subjects) {
    out += fmt::format("<th>{} v{}<br>{}, {}</th>", escaped(subject.run->plugin_name), subject.run->api,
                       escaped(subject.environment->nic), escaped(subject.environment->topology));
  }
  out += "</tr></thead><tbody>\n";
  std::vector<std::string> ids;
  std::map<std::string, std::vector<const RuleResult*>> rules;
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    for (const RuleResult& rule : subjects[i].run->rules) {
      std::vector<const RuleResult*>& row = rules[rule.id];
      if (row.empty()) {
        row.resize(subjects.size());
        ids.push_back(rule.id);
      }
      row[i] = &rule;
    }
  }
  std::size_t passed = 0;
  for (const std::string& id : ids) {
    const std::vector<const RuleResult*>& row = rules[id];
    if (std::all_of(row.begin(), row.end(), [](const RuleResult* r) { return r && r->verdict == Verdict::kPass; })) {
      ++passed;
      continue;
    }
    out += fmt::format("<tr><th>{}</th>", escaped(id));
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += row[i] == nullptr
                 ? std::string("<td class=\"na\">not run</td>")
                 : fmt::format("<td class=\"{}\"><a href=\"#{}{}\">{}</a></td>", class_of(row[i]->verdict),
                               subjects[i].anchor, escaped(id), text(row[i]->verdict));
    }
    out += "</tr>\n";
  }
  return out +
         fmt::format("</tbody></table><p class=\"dim\">{} passed in all runs.</p></div>\n", counted(passed, "rule"));
}

}  // namespace

std::string to_html(std::span<const Document> documents) {
  const std::vector<Subject> subjects = subjects_of(documents);
  const std::string title = subjects.empty() ? "plugfest" : "plugfest: " + subjects.front().run->plugin_name;
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{}</title><style>{}</style></head><body>\n<h1>{}</h1>\n",
      escaped(title), kStyle, escaped(title));
  if (documents.size() == 1) out += environment_html(documents.front());
  if (std::any_of(documents.begin(), documents.end(), [](const Document& each) { return each.stop_signal != 0; })) {
    out += "<p class=\"fail\">Stopped before the end.</p>\n";
  }
  Summary summary;
  for (const Subject& subject : subjects) {
    for (const RuleResult& rule : subject.run->rules) summary.add(rule);
  }
  if (subjects.size() > 1) out += matrix_html(subjects);
  out += filters(summary);
  auto subject = subjects.begin();
  for (const Document& document : documents) {
    if (documents.size() > 1) out += environment_html(document);
    if (document.loader) out += loader_html(*document.loader);
    for (const Flake& flake : find_flakes(document.runs))
      out += fmt::format("<p class=\"warn\">flaky: {} v{}: {}</p>\n", flake.id, flake.api, flake.verdicts.describe());
    for (std::size_t i = 0; i < document.runs.size(); ++i) out += run_html(*subject++);
  }
  return out + fmt::format("<script>{}</script></body></html>\n", kScript);
}

}  // namespace plugfest::report
