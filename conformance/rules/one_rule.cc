#include "conformance/rules/one_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>

#include "conformance/rules/turns.h"
#include "fabric/system/text.h"
#include "harness/faults/injector.h"
#include "harness/faults/script.h"
#include "harness/report/verdict.h"

namespace plugfest::conformance {
namespace {

using bed::RankGroup;
using report::RuleResult;
using report::Verdict;

std::vector<report::RankRecord> records(const control::Evidence& evidence) {
  std::vector<report::RankRecord> result;
  const auto seconds = [&](std::int64_t time_ns) { return static_cast<double>(time_ns - evidence.origin_ns) / 1e9; };
  for (const control::RankEvidence& rank : evidence.ranks) {
    report::RankRecord& record = result.emplace_back();
    record = {.name = rank.name, .last_calls = rank.last_calls, .log = rank.log, .output = rank.output};
    for (const control::CallRecord& call : rank.calls) {
      record.calls.push_back(
          {call.thread, call.call, call.result, seconds(call.start_ns), seconds(call.end_ns), call.count});
    }
  }
  return result;
}

// Whether a call, the plugin's log or its output names the error ENETUNREACH.
bool says_unreachable(const RuleResult& result) {
  const auto says = [](const std::string& text) { return text.find("Network is unreachable") != std::string::npos; };
  return says(result.message) || std::any_of(result.ranks.begin(), result.ranks.end(), [&](const auto& rank) {
           return says(rank.output) || std::any_of(rank.log.begin(), rank.log.end(), says);
         });
}

// The verdict, and the reason, of a rule that cannot run; nothing if it can.
std::optional<std::pair<Verdict, std::string>> why_not_run(const Rule& rule, const RankGroup& ranks,
                                                           const RunSettings& settings) {
  const Declaration& declaration = rule.declaration;
  if (!rule.apis.contains(settings.api))
    return {{Verdict::kNotApplicable, fmt::format("applies to {}; this is v{}", rule.apis.describe(), settings.api)}};
  if (!rule.apis.built_ins && settings.library.empty())
    return {{Verdict::kNotApplicable, "applies to libraries; this transport is built into NCCL"}};
  const auto skip = [](std::string reason) { return std::pair(Verdict::kSkip, std::move(reason)); };
  if (declaration.gpu && !settings.gpu) return skip("needs a CUDA GPU: --emulate-gpu emulates its memory");
  if (declaration.runs_nccl && settings.nccl.bed == nullptr)
    return skip("runs NCCL itself, and this run does not: add --with-nccl");
  if (declaration.thorough && !settings.thorough) return skip("takes a minute or gigabytes of memory: add --thorough");
  if (!ranks.ranks.empty()) return std::nullopt;
  if (settings.hosts.ranks.empty())
    return skip(fmt::format("needs {} hosts, and all ranks run on one", declaration.ranks));
  return skip(fmt::format("needs {} hosts that all reach each other, as in --topology mesh:{}", declaration.ranks,
                          declaration.ranks));
}

// Whether a fault began or ended during the rule. Its ranks may remember the earlier state, such as an address.
bool has_seen_a_change(const RuleResult& result) {
  return std::any_of(result.faults.begin(), result.faults.end(),
                     [&](const report::FaultRecord& fault) { return fault.start > 0 || fault.end < result.seconds; });
}

// The NICs of a rule's ranks, whose counters show events other than healthy traffic.
class NicCounters {
 public:
  // `injector`: null if there are no such NICs.
  NicCounters(faults::Injector* injector, const RankGroup& ranks) : injector_(injector) {
    if (injector_ == nullptr) return;
    std::set<std::string> names;
    for (const auto& interfaces : ranks.interfaces) names.insert(interfaces.begin(), interfaces.end());
    names.erase("");
    for (const std::string& name : names) {
      const faults::Interface interface = faults::find_interface(injector_->graph(), name);
      nics_.push_back({name, interface, injector_->trouble_counters(interface)});
    }
  }

  std::vector<report::NicRecord> moved() const {
    std::vector<report::NicRecord> records;
    for (const Nic& nic : nics_) {
      report::NicRecord record{nic.name, {}};
      const auto now = injector_->trouble_counters(nic.interface);
      for (std::size_t i = 0; i < now.size(); ++i) {
        const std::uint64_t count = now[i].second - nic.before[i].second;
        if (count != 0) record.second.emplace_back(now[i].first, count);
      }
      if (!record.second.empty()) records.push_back(std::move(record));
    }
    return records;
  }

 private:
  struct Nic {
    std::string name;
    faults::Interface interface;
    std::vector<std::pair<std::string_view, std::uint64_t>> before;
  };
  faults::Injector* injector_;
  std::vector<Nic> nics_;
};

// What counters of NICs say about operations that have failed or have not completed: a line for each, or "".
std::string explanation(std::string_view message, const std::vector<report::NicRecord>& nics) {
  const auto says = [&](std::string_view words) { return message.find(words) != std::string_view::npos; };
  if (!says("completed") && !says("returned nccl") && !says("*done = 0")) return "";
  constexpr std::pair<std::string_view, std::string_view> kMeanings[] = {
      {"unknown_queue_pairs",
       "NIC {} dropped {} for a queue pair number that its host does not have: the number that the peer was told is "
       "wrong, or the queue pair was destroyed"},
      {"sent_access_naks", "NIC {} refused {}: the key, the address or the length fits no registered memory"},
  };
  std::string text;
  for (const auto& [nic, counters] : nics) {
    for (const auto& [counter, count] : counters) {
      for (const auto& [name, meaning] : kMeanings)
        if (counter == name) text += '\n' + fmt::format(fmt::runtime(meaning), nic, counted(count, "packet"));
    }
  }
  return text;
}

}  // namespace

bool run_on_ranks(control::Session* session, const Rule& rule, const RankGroup& ranks, const RunSettings& settings,
                  Turns& turns, const Stopwatch& run_watch, RuleResult& result) {
  if (const auto reason = why_not_run(rule, ranks, settings)) {
    std::tie(result.verdict, result.message) = *reason;
    return false;
  }
  const bed::RankPath path{ranks.interfaces[0][1], ranks.interfaces[1][0]};
  if (!rule.declaration.runs_nccl) result.path = fmt::format("{}", fmt::join(ranks.ranks, " "));
  std::optional<Turn> among_runs;
  if (settings.among_runs != nullptr) among_runs.emplace(*settings.among_runs, rule.declaration.ranks > 2);
  const bool changes_network = settings.runs_alone && settings.runs_alone(rule);
  Turn turn(turns, changes_network || rule.declaration.runs_nccl || settings.one_at_a_time);
  if (changes_network) turn.note_change();
  const NicCounters nics(settings.injector, ranks);
  const Stopwatch watch;
  result.start = run_watch.seconds();
  std::optional<control::Lease> lease;
  if (session != nullptr) {
    lease.emplace(session->lease());
    // Processes of a host share the NIC's UDP port: packets for another rule may wait in a frozen process.
    lease->before_freeze([&turn] { turn.be_alone(); });
  }
  std::vector<report::RankRecord> own_records;
  const RuleContext context{settings, lease ? &*lease : nullptr, ranks, &turn, &own_records};
  if (settings.on_begin) settings.on_begin(rule, path);
  const RuleOutcome outcome = run_rule(rule, context, settings.seed, settings.strict);
  if (turn.became_alone() && !rule.runs_alone())
    throw std::logic_error(fmt::format("{} runs alone, but its declaration does not say so", rule.id));
  result.verdict = outcome.verdict;
  result.message = outcome.message;
  result.cause = outcome.cause;
  result.cut_short = outcome.cut_short;
  result.seconds = watch.seconds();
  if (settings.on_end) settings.on_end(result);
  if (report::is_broken(outcome.verdict) || outcome.verdict == Verdict::kError) {
    if (lease) {
      result.nics = nics.moved();
      result.message += explanation(result.message, result.nics);
      result.ranks = records(lease->evidence());
    }
    result.ranks.insert(result.ranks.end(), own_records.begin(), own_records.end());
    if (says_unreachable(result) && !settings.advice_if_unreachable.empty())
      result.message += "\n" + settings.advice_if_unreachable;
  }
  if (!lease) return outcome.undefined_code;
  const bool reusable = outcome.ranks_reusable && !turn.changes_network() && !has_seen_a_change(result);
  for (const std::string& problem : lease->release(reusable))
    if (reusable) result.message += (result.message.empty() ? "" : "\n") + problem;
  // Idle ranks have also observed the fault of the rule.
  if (turn.changes_network()) session->end_idle();
  return outcome.undefined_code;
}

}  // namespace plugfest::conformance
