#include "harness/report/comparison.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <tuple>

#include "fabric/system/text.h"
#include "harness/report/text.h"
#include "harness/report/verdict.h"

namespace plugfest::report {
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
