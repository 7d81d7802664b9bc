// The workers: one per path, each with the rules that belong there.
#include "conformance/rules/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "conformance/rules/play.h"

namespace plugfest::conformance {
namespace {

using report::RuleResult;
using report::Verdict;

/// A verdict that somebody has to look into: what the ranks did is kept.
bool wants_evidence(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWarn:
    case Verdict::kFail:
    case Verdict::kError:
    case Verdict::kCrash:
    case Verdict::kTimeout:
      return true;
    default:
      return false;
  }
}

std::vector<report::RankRecord> records(const control::Evidence& evidence) {
  std::vector<report::RankRecord> result;
  for (const control::Evidence::OfRank& rank : evidence.ranks) {
    result.push_back({rank.name, rank.last_calls, rank.log, rank.output});
  }
  return result;
}

RuleResult blank_result(const Rule& rule, const RunSettings& settings) {
  RuleResult result;
  result.id = rule.id;
  result.title = rule.clause.title;
  result.text = rule.clause.text;
  result.source = rule.clause.source;
  result.level = level_letter(rule.level);
  result.message = "never reported";
  result.rerun = fmt::format("{} --rule {}", settings.rerun, rule.id);
  return result;
}

/// Why the rule does not exist for this subject; nothing when it does.
std::optional<std::string> why_not_applicable(const Rule& rule, const RunSettings& settings) {
  if (!rule.apis.contains(settings.api)) return fmt::format("for {}, this is v{}", rule.apis.describe(), settings.api);
  if (!rule.apis.built_ins && settings.library.empty()) return "for libraries; this transport is built into NCCL";
  return std::nullopt;
}

/// Runs one rule and puts its ranks away.
void run_one(control::Session* session, const Rule& rule, const RulePath& path, const RunSettings& settings,
             RuleResult& result) {
  if (const auto reason = why_not_applicable(rule, settings)) {
    result.verdict = Verdict::kNotApplicable;
    result.message = *reason;
    return;
  }
  result.path = fmt::format("{} {}", path.near, path.far);
  std::optional<control::Lease> lease;
  if (session != nullptr) lease.emplace(session->lease());
  const Stage stage{lease ? &*lease : nullptr, path,         settings.limits,
                    settings.library,          settings.api, settings.injector};
  if (settings.on_begin) settings.on_begin(rule, path);
  const Played played = play(rule, stage, settings.seed, settings.strict);
  result.verdict = played.verdict;
  result.message = played.message;
  if (settings.on_end) settings.on_end(result);
  if (!lease) return;
  if (wants_evidence(played.verdict)) result.ranks = records(lease->evidence());
  for (const std::string& trouble : lease->release(played.clean)) {
    if (played.clean) result.message += (result.message.empty() ? "" : "\n") + trouble;
  }
}

class Run {
 public:
  Run(control::Session* session, const Catalogue& catalogue, const RunSettings& settings)
      : session_(session), settings_(settings) {
    for (std::size_t place = 0; place < catalogue.rules().size(); ++place) {
      const Rule& rule = catalogue.rules()[place];
      if (std::find(settings.rules.begin(), settings.rules.end(), &rule) == settings.rules.end()) continue;
      rules_.push_back({&rule, settings.paths.empty() ? 0 : place % settings.paths.size()});
      results_.push_back(blank_result(rule, settings));
    }
  }

  std::vector<RuleResult> run() {
    std::vector<std::thread> workers;
    for (std::size_t path = 0; path < std::max<std::size_t>(settings_.paths.size(), 1); ++path) {
      workers.emplace_back([this, path] { serve(path); });
    }
    for (std::thread& worker : workers) worker.join();
    return std::move(results_);
  }

 private:
  struct Placed {
    const Rule* rule;
    std::size_t path;
  };

  void serve(std::size_t path) {
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      if (rules_[i].path != path) continue;
      if (settings_.stop != nullptr && settings_.stop->load()) return;
      const auto start = std::chrono::steady_clock::now();
      RuleResult& result = results_[i];
      try {
        run_one(session_, *rules_[i].rule, settings_.paths.empty() ? RulePath{} : settings_.paths[path], settings_,
                result);
      } catch (const std::exception& error) {
        result.verdict = Verdict::kError;
        result.message = error.what();
      }
      result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      report(result);
    }
  }

  void report(const RuleResult& result) {
    if (!settings_.on_result) return;
    const std::lock_guard lock(reporting_);
    settings_.on_result(result);
  }

  control::Session* session_;
  const RunSettings& settings_;
  std::vector<Placed> rules_;
  std::vector<RuleResult> results_;
  std::mutex reporting_;
};

}  // namespace

std::vector<RuleResult> run_rules(control::Session* session, const Catalogue& catalogue, const RunSettings& settings) {
  return Run(session, catalogue, settings).run();
}

std::vector<RulePath> disjoint_paths(const topology::Graph& graph) {
  std::vector<RulePath> paths;
  std::set<topology::HostInterface> taken;
  for (const topology::Path& path : graph.paths()) {
    if (taken.count(path.from) != 0 || taken.count(path.to) != 0) continue;
    taken.insert({path.from, path.to});
    paths.push_back({graph.interface_name(path.from), graph.interface_name(path.to)});
  }
  return paths;
}

}  // namespace plugfest::conformance
