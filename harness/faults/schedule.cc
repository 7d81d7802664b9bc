// One thread handles timed actions. The threads of the rules handle steps.
#include "harness/faults/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "fabric/system/text.h"

namespace plugfest::faults {
namespace {

// Returns "isend" for "isend(1000 bytes, tag 7)".
std::string_view function_of(std::string_view call) { return call.substr(0, call.find_first_of("( ")); }

bool is_call_of(const Step& step, const std::string& rank, std::string_view function) {
  if (step.call != function) return false;
  return step.rank.empty() || step.rank == rank || rank.starts_with(step.rank + ".");
}

double seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Schedule::Schedule(const Script& script, Injector& injector, control::CallObserver* next)
    : script_(script), injector_(injector), next_(next), progress_(script.entries.size()) {}

Schedule::~Schedule() {
  try {
    end_run();
  } catch (const std::exception&) {
    // The destructor of the injector tries again.
  }
}

void Schedule::begin_run() {
  const std::lock_guard lock(mutex_);
  start_ = Clock::now();
  for (std::size_t i = 0; i < script_.entries.size(); ++i) {
    const Entry& entry = script_.entries[i];
    if (entry.at) {
      timed_actions_.emplace(*start_ + *entry.at, TimedAction{.entry = i, .rule = {}, .occurrence = nullptr});
    } else if (!entry.on) {
      begin(i, "");
      if (!progress_[i].error.empty()) throw std::runtime_error(progress_[i].error);
    }
  }
  timer_ = std::thread([this] { run_timer(); });
}

void Schedule::begin_rule(const std::string& rule, const std::string& near_rank, const std::string& far_rank) {
  const std::lock_guard lock(mutex_);
  rules_[rule] = {.near_rank = near_rank, .far_rank = far_rank, .start = Clock::now(), .calls = {}};
  for (const Occurrence& occurrence : occurrences_)
    if (!occurrence.end && is_on_path(script_.entries[occurrence.entry].fault, rules_[rule]))
      progress_[occurrence.entry].had_a_rule = true;
  for (std::size_t i = 0; i < script_.entries.size(); ++i) {
    const std::optional<Step>& on = script_.entries[i].on;
    if (!on || !matches(*on, rule)) continue;
    progress_[i].rule_ran = true;
    if (on->call.empty()) trigger(i, rule);
  }
}

std::vector<report::FaultRecord> Schedule::end_rule(const std::string& rule) {
  const std::lock_guard lock(mutex_);
  const RunningRule running = std::move(rules_[rule]);
  rules_.erase(rule);
  std::erase_if(timed_actions_,
                [&](const auto& timed) { return timed.second.occurrence == nullptr && timed.second.rule == rule; });
  std::vector<report::FaultRecord> affecting;
  for (Occurrence& occurrence : occurrences_) {
    if (occurrence.rule == rule) end(occurrence);
    const bool ended = occurrence.end && *occurrence.end < running.start;
    if (!ended && (occurrence.rule == rule || affects(occurrence, running)))
      affecting.push_back(record(occurrence, running.start));
  }
  for (report::FaultRecord& fault : affecting) fault.start = std::max(fault.start, 0.0);
  return affecting;
}

void Schedule::end_run() {
  {
    const std::lock_guard lock(mutex_);
    if (!start_ || end_) return;
    end_ = Clock::now();
    timed_actions_.clear();
    for (Occurrence& occurrence : occurrences_) end(occurrence);
  }
  changed_.notify_all();
  if (timer_.joinable()) timer_.join();  // begin_run() may have failed
}

void Schedule::before_call(const std::string& rank, const std::string& call) {
  {
    const std::lock_guard lock(mutex_);
    const auto running = std::find_if(rules_.begin(), rules_.end(), [&](const auto& entry) {
      return entry.second.near_rank == rank || entry.second.far_rank == rank;
    });
    if (running != rules_.end()) {
      const std::string& rule = running->first;
      const std::string_view function = function_of(call);
      for (Occurrence& occurrence : occurrences_) {
        const std::optional<Step>& until = script_.entries[occurrence.entry].until;
        const bool counts = !occurrence.end && until && occurrence.rule == rule && is_call_of(*until, rank, function);
        if (counts && ++occurrence.calls == until->nth) end(occurrence);
      }
      for (std::size_t i = 0; i < script_.entries.size(); ++i) {
        const std::optional<Step>& on = script_.entries[i].on;
        if (!on || !matches(*on, rule) || !is_call_of(*on, rank, function)) continue;
        const unsigned count = ++running->second.calls[i];
        progress_[i].max_calls = std::max(progress_[i].max_calls, count);
        if (count == on->nth) trigger(i, rule);
      }
    }
  }
  if (next_ != nullptr) next_->before_call(rank, call);
}

void Schedule::on_call(const std::string& rank, const control::CallRecord& call) {
  if (next_ != nullptr) next_->on_call(rank, call);
}

std::vector<report::FaultRecord> Schedule::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<report::FaultRecord> all;
  for (const Occurrence& occurrence : occurrences_) all.push_back(record(occurrence, *start_));
  return all;
}

std::int64_t Schedule::origin_ns() const {
  const std::lock_guard lock(mutex_);
  return start_ ? std::chrono::duration_cast<std::chrono::nanoseconds>(start_->time_since_epoch()).count() : 0;
}

std::vector<report::MissedFault> Schedule::missed() const {
  const std::lock_guard lock(mutex_);
  std::vector<report::MissedFault> missed;
  for (std::size_t i = 0; i < script_.entries.size(); ++i) {
    if (has_begun(i)) continue;
    const Entry& entry = script_.entries[i];
    missed.push_back({entry.fault.text + ", " + entry.when(), entry.source, why_missed(entry, progress_[i])});
  }
  return missed;
}

std::string Schedule::why_missed(const Entry& entry, const Progress& progress) const {
  if (!progress.error.empty()) return progress.error;
  if (entry.at) return fmt::format("the run ended after {:.2f} s", end_ && start_ ? seconds(*end_ - *start_) : 0.0);
  if (!entry.on) return "";
  if (!progress.rule_ran) return fmt::format("{} did not run", entry.on->rule);
  if (progress.reached) return fmt::format("{} ended before the delay", entry.on->rule);
  return fmt::format("{} made {}", entry.on->rule, counted(progress.max_calls, "such call"));
}

std::vector<report::MissedFault> Schedule::ineffective() const {
  const std::lock_guard lock(mutex_);
  std::vector<report::MissedFault> ineffective;
  for (std::size_t i = 0; i < script_.entries.size(); ++i) {
    if (!has_begun(i)) continue;
    const Entry& entry = script_.entries[i];
    std::string reason;
    if (!progress_[i].had_a_rule) {
      reason = entry.fault.host.empty() ? "no rule that ran then uses these interfaces"
                                        : fmt::format("no rule that ran then has a rank on host {}", entry.fault.host);
    } else if (entry.fault.kind == Kind::kPackets && !progress_[i].had_packets) {
      reason = "no packet passed the NICs; packet faults do not affect TCP connections";
    } else {
      continue;
    }
    ineffective.push_back({entry.fault.text + ", " + entry.when(), entry.source, reason});
  }
  return ineffective;
}

void Schedule::run_timer() {
  std::unique_lock lock(mutex_);
  while (!end_) {
    if (timed_actions_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = timed_actions_.begin();
    if (Clock::now() < first->first) {
      const Clock::time_point time = first->first;
      changed_.wait_until(lock, time);
      continue;
    }
    const TimedAction action = std::move(first->second);
    timed_actions_.erase(first);
    if (action.occurrence != nullptr)
      end(*action.occurrence);
    else
      begin(action.entry, action.rule);
  }
}

void Schedule::trigger(std::size_t index, const std::string& rule) {
  const Entry& entry = script_.entries[index];
  progress_[index].reached = true;
  if (entry.after.count() == 0) return begin(index, rule);
  timed_actions_.emplace(Clock::now() + entry.after, TimedAction{.entry = index, .rule = rule, .occurrence = nullptr});
  changed_.notify_all();
}

void Schedule::begin(std::size_t index, const std::string& rule) {
  const Entry& entry = script_.entries[index];
  Occurrence occurrence{
      .entry = index, .rule = rule, .injection = 0, .packets = 0, .calls = 0, .start = Clock::now(), .end = {}};
  try {
    if (entry.fault.kind == Kind::kPackets) occurrence.packets = injector_.packets(entry.fault.interfaces);
    occurrence.injection = injector_.begin(entry.fault);
  } catch (const std::exception& error) {
    progress_[index].error = error.what();
    return;
  }
  if (entry.fault.kind == Kind::kKill) occurrence.end = occurrence.start;
  for (const auto& [id, running] : rules_)
    if (is_on_path(entry.fault, running)) progress_[index].had_a_rule = true;
  occurrences_.push_back(std::move(occurrence));
  if (entry.duration) {
    timed_actions_.emplace(Clock::now() + *entry.duration,
                           TimedAction{.entry = index, .rule = rule, .occurrence = &occurrences_.back()});
    changed_.notify_all();
  }
}

void Schedule::end(Occurrence& occurrence) {
  if (occurrence.end) return;
  Progress& progress = progress_[occurrence.entry];
  try {
    const Fault& fault = script_.entries[occurrence.entry].fault;
    if (fault.kind == Kind::kPackets && injector_.packets(fault.interfaces) != occurrence.packets)
      progress.had_packets = true;
    injector_.end(occurrence.injection);
  } catch (const std::exception& error) {
    progress.error = error.what();
  }
  occurrence.end = Clock::now();
}

report::FaultRecord Schedule::record(const Occurrence& occurrence, Clock::time_point origin) const {
  const Entry& entry = script_.entries[occurrence.entry];
  return {entry.fault.text, entry.source, occurrence.rule, seconds(occurrence.start - origin),
          seconds(occurrence.end.value_or(Clock::now()) - origin)};
}

bool Schedule::affects(const Occurrence& occurrence, const RunningRule& rule) const {
  const Fault& fault = script_.entries[occurrence.entry].fault;
  // A plugin may use all interfaces of a host.
  const auto is_host = [&](const std::string& name) {
    return rule.near_rank.starts_with(name + ".") || rule.far_rank.starts_with(name + ".");
  };
  if (!fault.host.empty()) return is_host(fault.host);
  return std::any_of(fault.interfaces.begin(), fault.interfaces.end(),
                     [&](const Interface& interface) { return !interface.of_host || is_host(interface.node); });
}

bool Schedule::is_on_path(const Fault& fault, const RunningRule& rule) {
  const auto is_rank = [&](const std::string& name) { return name == rule.near_rank || name == rule.far_rank; };
  if (!fault.host.empty())
    return rule.near_rank.starts_with(fault.host + ".") || rule.far_rank.starts_with(fault.host + ".");
  return std::any_of(fault.interfaces.begin(), fault.interfaces.end(), [&](const Interface& interface) {
    return !interface.of_host || is_rank(interface.node + "." + interface.name);
  });
}

bool Schedule::has_begun(std::size_t entry) const {
  if (!progress_[entry].error.empty()) return false;
  return std::any_of(occurrences_.begin(), occurrences_.end(),
                     [&](const Occurrence& occurrence) { return occurrence.entry == entry; });
}

}  // namespace plugfest::faults
