#include "harness/report/baseline.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

#include "fabric/system/text.h"
#include "fabric/system/yaml_file.h"
#include "harness/report/text.h"
#include "harness/report/verdict.h"

namespace plugfest::report {
namespace {

bool is_day(const std::string& text) {
  if (text.size() != 10) return false;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (i == 4 || i == 7 ? text[i] != '-' : text[i] < '0' || text[i] > '9') return false;
  return "01" <= text.substr(5, 2) && text.substr(5, 2) <= "12" && "01" <= text.substr(8) && text.substr(8) <= "31";
}

class File : YamlFile {
 public:
  explicit File(const std::filesystem::path& path) : YamlFile("known findings", path) {}

  std::vector<KnownFinding> read() {
    const YAML::Node root = load();
    require_map(root, "known findings");
    require_known(root, "known findings", {"findings"});
    std::vector<KnownFinding> findings;
    for (const YAML::Node& node : list(root, "known findings", "findings")) findings.push_back(read_finding(node));
    return findings;
  }

 private:
  KnownFinding read_finding(const YAML::Node& node) const {
    require_map(node, "finding");
    require_known(node, "finding", {"rule", "subject", "reason", "expires", "seldom"});
    KnownFinding finding;
    finding.rule = text(required(node, "finding", "rule"), "rule");
    finding.subject = text(required(node, "finding", "subject"), "subject");
    finding.reason = text(required(node, "finding", "reason"), "reason");
    if (const YAML::Node expires = node["expires"]) finding.expires = text(expires, "expires");
    if (!finding.expires.empty() && !is_day(finding.expires))
      fail(node["expires"], fmt::format("expires \"{}\": expected a day such as 2027-03-31", finding.expires));
    if (const YAML::Node seldom = node["seldom"]) {
      finding.seldom = text(seldom, "seldom") == "true";
      if (!finding.seldom)
        fail(seldom, fmt::format("seldom \"{}\": expected true, or no such field", scalar(seldom, "seldom")));
    }
    finding.location = location(node);
    return finding;
  }

  std::string text(const YAML::Node& node, std::string_view what) const {
    std::string value = scalar(node, what);
    if (value.empty()) fail(node, fmt::format("{}: must not be empty", what));
    return value;
  }
};

}  // namespace

KnownFindings KnownFindings::read(const std::filesystem::path& path) { return KnownFindings(File(path).read()); }

void KnownFindings::require_rules(const std::vector<std::string>& ids) const {
  for (const KnownFinding& finding : findings_) {
    if (std::find(ids.begin(), ids.end(), finding.rule) != ids.end()) continue;
    throw std::runtime_error(fmt::format("known findings {}: no rule \"{}\": {}", finding.location, finding.rule,
                                         suggestion(finding.rule, ids)));
  }
}

KnownFindings KnownFindings::about(const std::string& plugin_path, const std::string& plugin_name) const {
  const std::string file_name = std::filesystem::path(plugin_path).filename().string();
  const std::array names = {plugin_name, plugin_path, file_name};
  KnownFindings about_plugin;
  for (const KnownFinding& finding : findings_) {
    const bool matches = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return fnmatch(finding.subject.c_str(), name.c_str(), 0) == 0;
    });
    if (matches) about_plugin.findings_.push_back(finding);
  }
  return about_plugin;
}

void KnownFindings::apply(RuleResult& result, const std::string& today) const {
  for (const KnownFinding& finding : findings_) {
    if (finding.rule != result.id) continue;
    if (result.verdict == Verdict::kPass) {
      if (finding.seldom) return;
      result.known = fmt::format("passes although {} expects it to fail: remove that finding", finding.location);
      return;
    }
    if (!is_broken(result.verdict)) return;
    if (finding.expires.empty() || finding.expires >= today) {
      result.known = fmt::format("known finding: {} ({})", finding.reason, finding.location);
      result.verdict = Verdict::kWaived;
      return;
    }
    result.known =
        fmt::format("no longer waived, {} expired on {}: {}", finding.location, finding.expires, finding.reason);
  }
}

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm day{};
  gmtime_r(&now, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

namespace {

// 0: good or not tested, 1: a warning, 2: bad.
int badness(std::optional<Verdict> verdict) {
  if (!verdict) return 0;
  if (is_bad(*verdict)) return 2;
  return is_broken(*verdict) ? 1 : 0;
}

Change::Kind kind_of(std::optional<Verdict> before, std::optional<Verdict> after) {
  // A rule that is no longer tested is worse than one that passed, because its result is unknown.
  const bool lost = before && *before == Verdict::kPass && (!after || *after == Verdict::kSkip);
  if (lost || badness(after) > badness(before)) return Change::Kind::kWorse;
  return badness(after) < badness(before) ? Change::Kind::kBetter : Change::Kind::kOther;
}

bool has_one_plugin(const Document& document) {
  std::set<std::string> names;
  for (const Run& run : document.runs) names.insert(run.plugin_name);
  return names.size() == 1;
}

// Identifies a run: plugin (empty if names are ignored), version, number among equal ones.
using Key = std::tuple<std::string, int, int>;

std::map<Key, const Run*> keyed(const Document& document, bool with_names) {
  std::map<Key, const Run*> runs;
  for (const Run& run : document.runs) {
    Key key{with_names ? run.plugin_name : "", run.api, 0};
    while (runs.contains(key)) ++std::get<2>(key);
    runs[key] = &run;
  }
  return runs;
}

std::string subject_of(const Run& run) { return fmt::format("{} v{}", printable(run.plugin_name), run.api); }

const RuleResult* find(const Run& run, const std::string& id) {
  const auto found = std::find_if(run.rules.begin(), run.rules.end(), [&](const RuleResult& r) { return r.id == id; });
  return found != run.rules.end() ? &*found : nullptr;
}

void compare_runs(const Run& before, const Run& after, Comparison& comparison) {
  const std::string subject = before.plugin_name == after.plugin_name
                                  ? subject_of(after)
                                  : fmt::format("{} and {}", subject_of(before), subject_of(after));
  const auto add = [&](const RuleResult* old, const RuleResult* now) {
    const RuleResult& any = now != nullptr ? *now : *old;
    Change change{
        .subject = subject, .rule = any.id, .title = any.title, .before = {}, .after = {}, .message = any.message};
    if (old != nullptr) change.before = old->verdict;
    if (now != nullptr) change.after = now->verdict;
    if (change.before == change.after) return;
    change.kind = kind_of(change.before, change.after);
    comparison.changes.push_back(std::move(change));
  };
  for (const RuleResult& old : before.rules) {
    const RuleResult* now = find(after, old.id);
    if (now != nullptr) ++comparison.compared;
    add(&old, now);
  }
  for (const RuleResult& now : after.rules)
    if (find(before, now.id) == nullptr) add(nullptr, &now);
}

std::string verdict_text(std::optional<Verdict> verdict) { return verdict ? std::string(text(*verdict)) : "not run"; }

}  // namespace

bool Comparison::any_worse() const {
  return std::any_of(changes.begin(), changes.end(),
                     [](const Change& change) { return change.kind == Change::Kind::kWorse; });
}

Comparison compare(const Document& before, const Document& after) {
  const bool with_names = !has_one_plugin(before) || !has_one_plugin(after);
  const std::map<Key, const Run*> first = keyed(before, with_names), second = keyed(after, with_names);
  Comparison comparison;
  for (const auto& [key, run] : first) {
    const auto same = second.find(key);
    if (same == second.end())
      comparison.alone.push_back("only in the first: " + subject_of(*run));
    else
      compare_runs(*run, *same->second, comparison);
  }
  for (const auto& [key, run] : second)
    if (!first.contains(key)) comparison.alone.push_back("only in the second: " + subject_of(*run));
  std::stable_sort(comparison.changes.begin(), comparison.changes.end(),
                   [](const Change& one, const Change& other) { return one.kind < other.kind; });
  return comparison;
}

std::string describe(const Comparison& comparison) {
  std::string out;
  std::string subject;
  std::size_t worse = 0, better = 0;
  for (const Change& change : comparison.changes) {
    if (change.subject != subject) out += change.subject + '\n';
    subject = change.subject;
    const char* const mark = change.kind == Change::Kind::kWorse    ? "worse"
                             : change.kind == Change::Kind::kBetter ? "better"
                                                                    : "other";
    out += fmt::format("  {:<6} {} {} → {}  {}\n", mark, change.rule, verdict_text(change.before),
                       verdict_text(change.after), printable(change.title));
    if (change.kind == Change::Kind::kWorse && !change.message.empty())
      out += std::string(9, ' ') + wrapped(printable(first_line(change.message)), 9) + '\n';
    worse += change.kind == Change::Kind::kWorse;
    better += change.kind == Change::Kind::kBetter;
  }
  for (const std::string& subject_alone : comparison.alone) out += subject_alone + '\n';
  const std::string total = counted(comparison.compared, "rule") + " compared: ";
  if (comparison.changes.empty()) return out + total + "no verdict changed\n";
  return out + total +
         fmt::format("{} worse, {} better, {} otherwise changed\n", worse, better,
                     comparison.changes.size() - worse - better);
}

}  // namespace plugfest::report
