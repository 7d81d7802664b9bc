#include "conformance/rules/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "conformance/rules/one_rule.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/turns.h"
#include "fabric/system/clock.h"
#include "fabric/system/text.h"
#include "harness/report/text.h"
#include "harness/report/verdict.h"

namespace plugfest::conformance {
namespace {

using bed::RankGroup;
using report::RuleResult;
using report::Verdict;

// Keeps the last lines: at most `max_lines`, with at most `max_bytes` in total.
void keep_last(std::vector<std::string>& lines, std::size_t max_lines, std::size_t max_bytes) {
  std::size_t first = lines.size();
  while (first > 0 && lines.size() - first < max_lines && lines[first - 1].size() <= max_bytes)
    max_bytes -= lines[--first].size();
  if (first == 0) return;
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(first));
  lines.insert(lines.begin(), fmt::format("… {} left out …", counted(first, "earlier line")));
}

// The last lines of `text`, at most `max_lines`, each shortened to `line_bytes`.
std::string last_lines(const std::string& text, std::size_t line_bytes, std::size_t max_lines) {
  std::vector<std::string> lines = report::lines_of(text);
  for (std::string& line : lines) line = shortened(line, line_bytes);
  keep_last(lines, max_lines, std::numeric_limits<std::size_t>::max());
  return fmt::format("{}{}", fmt::join(lines, "\n"), text.ends_with('\n') ? "\n" : "");
}

// Truncates the plugin's output, which may have any length.
void shorten(RuleResult& result) {
  constexpr std::size_t kLineBytes = 1000, kMessageLines = 200, kOutputLines = 2000, kLogBytes = 64 * 1024;
  result.message = shortened_lines(result.message, kLineBytes, kMessageLines);
  for (report::RankRecord& rank : result.ranks) {
    for (std::string& line : rank.last_calls) line = shortened(line, kLineBytes);
    for (std::string& line : rank.log) line = shortened(line, kLineBytes);
    keep_last(rank.log, rank.log.size(), kLogBytes);
    for (report::CallSpan& call : rank.calls) {
      call.call = shortened(call.call, kLineBytes);
      call.result = shortened(call.result, kLineBytes);
    }
    rank.output = last_lines(rank.output, kLineBytes, kOutputLines);
  }
}

RuleResult blank_result(const Rule& rule, const RunSettings& settings) {
  RuleResult result;
  result.id = rule.id;
  result.title = rule.declaration.title;
  result.group = group_title(rule.group());
  result.text = rule.declaration.text;
  result.source = rule.declaration.source;
  result.level = level_letter(rule.level);
  result.message = "the rule has reported no verdict";
  result.rerun = fmt::format("{} --rule {}", settings.rerun, rule.id);
  return result;
}

class Run {
 public:
  Run(control::Session* session, const Catalog& catalog, const RunSettings& settings)
      : session_(session), settings_(settings) {
    std::size_t first_rules = 0;
    for (std::size_t position = 0; position < catalog.rules().size(); ++position) {
      const Rule& rule = catalog.rules()[position];
      // Communicators of CollNet compete for the switches, so their rules run one after the other.
      const bool alone = rule.apis.interface == plugin::InterfaceKind::kCollNet && !settings.hosts.ranks.empty();
      const bool on_a_path = rule.declaration.ranks == 2 && !alone;
      // Rules that start first are on different paths, so that they run at the same time.
      const std::size_t path = on_a_path && rule.declaration.starts_first ? first_rules++ : position;
      if (!rule.apis.is_about(settings.interface)) continue;
      if (std::find(settings.rules.begin(), settings.rules.end(), &rule) == settings.rules.end()) continue;
      if (rule.declaration.covers_undefined_codes) codes_rule_ = rules_.size();
      if (rule.declaration.loads_plugin) loading_rule_ = rules_.size();
      rules_.push_back({&rule, on_a_path ? path % paths() : paths()});
      any_group_ = any_group_ || !on_a_path;
      results_.push_back(blank_result(rule, settings));
    }
  }

  std::vector<RuleResult> run() {
    if (loading_rule_) {
      serve({*loading_rule_});
      const RuleResult& loading = results_[*loading_rule_];
      if (session_ != nullptr && report::is_broken(loading.verdict)) session_->refuse(loading.message);
    }
    for (const bool alone : {false, true}) serve_paths(alone);
    if (codes_rule_ran_ || !undefined_codes_.empty()) finish_codes_rule();
    return std::move(results_);
  }

 private:
  struct PlacedRule {
    const Rule* rule;
    std::size_t worker;  ///< index in RunSettings::paths; their number for a rule with more than two ranks
  };

  std::size_t paths() const { return std::max<std::size_t>(settings_.paths.size(), 1); }

  RankGroup ranks_for(const PlacedRule& placed) const {
    if (placed.worker == paths()) {
      const Declaration& declaration = placed.rule->declaration;
      for (std::size_t count = std::max(declaration.most_ranks, declaration.ranks); count >= declaration.ranks; --count)
        if (std::optional<RankGroup> group = settings_.hosts.complete(count)) return *std::move(group);
      return {};
    }
    return RankGroup(settings_.paths.empty() ? bed::RankPath{} : settings_.paths[placed.worker]);
  }

  // Serves all paths at the same time. `alone`: whether with the rules that run alone, or with all others.
  void serve_paths(bool alone) {
    std::vector<std::thread> workers;
    for (std::size_t worker = 0; worker < paths() + (any_group_ ? 1 : 0); ++worker) {
      const std::vector<std::size_t> numbers = rules_of(worker, alone);
      if (numbers.empty()) continue;
      try {
        workers.emplace_back([this, numbers] { serve(numbers); });
      } catch (const std::system_error& error) {
        // The limit of processes: see ulimit -u.
        leave_out(numbers, fmt::format("not started: cannot start a thread: {}", error.code().message()));
      }
    }
    for (std::thread& worker : workers) worker.join();
  }

  // The numbers of the rules of a worker, in the order in which it runs them.
  std::vector<std::size_t> rules_of(std::size_t worker, bool alone) const {
    std::vector<std::size_t> numbers;
    // A user's fault begins in one rule and may end in a later one, so it keeps the order of the rules.
    const auto waits = [&](const PlacedRule& placed) {
      return !settings_.runs_alone && placed.rule->runs_alone() && !placed.rule->declaration.starts_first;
    };
    for (std::size_t i = 0; i < rules_.size(); ++i)
      if (rules_[i].worker == worker && i != loading_rule_ && waits(rules_[i]) == alone) numbers.push_back(i);
    if (settings_.runs_alone) return numbers;
    std::stable_partition(numbers.begin(), numbers.end(),
                          [&](std::size_t i) { return rules_[i].rule->declaration.starts_first; });
    return numbers;
  }

  // Runs the rules with these numbers.
  void serve(const std::vector<std::size_t>& numbers) {
    for (auto next = numbers.begin(); next != numbers.end(); ++next) {
      const std::size_t i = *next;
      if (settings_.stop != nullptr && settings_.stop->load()) {
        leave_out({next, numbers.end()}, "not started: a signal ended the run");
        return;
      }
      if (settings_.max_failures != 0 && failed_ >= settings_.max_failures) {
        results_[i].verdict = Verdict::kSkip;
        results_[i].message = "not started: the limit of --maxfail was reached";
        continue;
      }
      run_one(i);
      if (i == codes_rule_)
        codes_rule_ran_ = true;
      else
        report_result(results_[i]);
    }
  }

  // Gives rules a reason why they have no verdict.
  void leave_out(std::span<const std::size_t> numbers, const std::string& reason) {
    for (const std::size_t i : numbers) results_[i].message = reason;
  }

  // Runs a rule and makes its result final.
  void run_one(std::size_t index) {
    const PlacedRule& placed = rules_[index];
    RuleResult& result = results_[index];
    try {
      const bool undefined_code =
          run_on_ranks(session_, *placed.rule, ranks_for(placed), settings_, turns_, watch_, result);
      if (undefined_code) fail_codes_rule(index);
    } catch (const std::exception& error) {
      result.verdict = Verdict::kError;
      result.message = error.what();
    }
    if (index != codes_rule_) make_final(result);
  }

  void make_final(RuleResult& result) {
    shorten(result);
    settings_.known.apply(result, today_);
    if (report::is_bad(result.verdict)) ++failed_;
  }

  // The result code of a call in this rule, which gets no verdict, breaks the rule about codes.
  void fail_codes_rule(std::size_t index) {
    if (!codes_rule_ || index == codes_rule_) return;
    const std::lock_guard lock(reporting_);
    undefined_codes_.emplace(index, results_[index]);
    RuleResult& result = results_[index];
    result.verdict = Verdict::kSkip;
    result.message = fmt::format("not tested, see {}: {}", rules_[*codes_rule_].rule->id, result.message);
    result.ranks.clear();
  }

  // Makes the result of the rule about codes final when all other rules have ended.
  void finish_codes_rule() {
    RuleResult& result = results_[*codes_rule_];
    if (!undefined_codes_.empty() && !report::is_broken(result.verdict)) {
      const RuleResult& first = undefined_codes_.begin()->second;
      result.verdict = Verdict::kFail;
      result.message = fmt::format("{} (in {})", first.message, first.id);
      result.path = first.path;
      result.ranks = first.ranks;
      result.rerun = fmt::format("{},{}", first.rerun, result.id);
    }
    if (undefined_codes_.size() > 1) {
      std::vector<std::string> ids;
      for (const auto& [index, undefined] : undefined_codes_) ids.push_back(undefined.id);
      result.message += fmt::format("\nrules in which it happened: {}", fmt::join(ids, ", "));
    }
    make_final(result);
    report_result(result);
  }

  void report_result(const RuleResult& result) {
    if (!settings_.on_result) return;
    const std::lock_guard lock(reporting_);
    settings_.on_result(result);
  }

  control::Session* session_;
  const RunSettings& settings_;
  std::vector<PlacedRule> rules_;
  std::vector<RuleResult> results_;
  bool any_group_ = false;
  std::optional<std::size_t> codes_rule_, loading_rule_;
  bool codes_rule_ran_ = false;
  // The results of rules in which a call returned an undefined code, by index.
  std::map<std::size_t, RuleResult> undefined_codes_;
  Turns turns_;
  const Stopwatch watch_;
  std::mutex reporting_;
  std::atomic<std::size_t> failed_ = 0;
  const std::string today_ = report::today();
};

}  // namespace

std::vector<RuleResult> run_rules(control::Session* session, const Catalog& catalog, const RunSettings& settings) {
  return Run(session, catalog, settings).run();
}

}  // namespace plugfest::conformance
