// One thread for what the clock begins and ends; the threads of the rules for the rest.
#include "harness/faults/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

namespace plugfest::faults {
namespace {

/// "isend" of "isend(1000 bytes, tag 7)"
std::string_view function_of(std::string_view call) { return call.substr(0, call.find_first_of("( ")); }

bool makes(const Step& step, const std::string& rank, std::string_view function) {
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
    // The injector's own end tries once more.
  }
}

void Schedule::begin_run() {
  const std::lock_guard lock(mutex_);
  start_ = Clock::now();
  for (std::size_t i = 0; i < script_.entries.size(); ++i) {
    const Entry& entry = script_.entries[i];
    if (entry.at) {
      due_.emplace(*start_ + *entry.at, Due{.entry = i, .rule = {}, .firing = nullptr});
    } else if (!entry.on) {
      begin(i, "");
      if (!progress_[i].trouble.empty()) throw std::runtime_error(progress_[i].trouble);
    }
  }
  timer_ = std::thread([this] { serve(); });
}

void Schedule::begin_rule(const std::string& rule, const std::string& near, const std::string& far) {
  const std::lock_guard lock(mutex_);
  rules_[rule] = {.near = near, .far = far, .start = Clock::now(), .calls = {}};
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
  std::erase_if(due_, [&](const auto& due) { return due.second.firing == nullptr && due.second.rule == rule; });
  std::vector<report::FaultRecord> felt;
  for (Firing& firing : firings_) {
    if (firing.rule == rule) end(firing);
    const bool over = firing.end && *firing.end < running.start;
    if (!over && (firing.rule == rule || felt_by(firing, running))) felt.push_back(record(firing, running.start));
  }
  for (report::FaultRecord& each : felt) each.start = std::max(each.start, 0.0);
  return felt;
}

void Schedule::end_run() {
  {
    const std::lock_guard lock(mutex_);
    if (!start_ || end_) return;
    end_ = Clock::now();
    due_.clear();
    for (Firing& firing : firings_) end(firing);
  }
  changed_.notify_all();
  timer_.join();
}

void Schedule::before_call(const std::string& rank, const std::string& call) {
  {
    const std::lock_guard lock(mutex_);
    const auto running = std::find_if(rules_.begin(), rules_.end(), [&](const auto& each) {
      return each.second.near == rank || each.second.far == rank;
    });
    if (running != rules_.end()) {
      const std::string& rule = running->first;
      const std::string_view function = function_of(call);
      for (Firing& firing : firings_) {
        const std::optional<Step>& until = script_.entries[firing.entry].until;
        const bool counts = !firing.end && until && firing.rule == rule && makes(*until, rank, function);
        if (counts && ++firing.calls == until->nth) end(firing);
      }
      for (std::size_t i = 0; i < script_.entries.size(); ++i) {
        const std::optional<Step>& on = script_.entries[i].on;
        if (!on || !matches(*on, rule) || !makes(*on, rank, function)) continue;
        const unsigned count = ++running->second.calls[i];
        progress_[i].most_calls = std::max(progress_[i].most_calls, count);
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
  for (const Firing& firing : firings_) all.push_back(record(firing, *start_));
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
    if (began(i)) continue;
    const Entry& entry = script_.entries[i];
    const Progress& progress = progress_[i];
    std::string reason = progress.trouble;
    if (!reason.empty()) {
    } else if (entry.at) {
      reason = fmt::format("the run was over after {:.2f} s", end_ && start_ ? seconds(*end_ - *start_) : 0.0);
    } else if (entry.on && !progress.rule_ran) {
      reason = fmt::format("{} did not run here", entry.on->rule);
    } else if (progress.reached) {
      reason = fmt::format("{} was over before", entry.on->rule);
    } else if (entry.on) {
      reason = fmt::format("{} made {} such call{}", entry.on->rule, progress.most_calls,
                           progress.most_calls == 1 ? "" : "s");
    }
    missed.push_back({entry.fault.text + ", " + entry.when(), entry.source, reason});
  }
  return missed;
}

void Schedule::serve() {
  std::unique_lock lock(mutex_);
  while (!end_) {
    if (due_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = due_.begin();
    if (Clock::now() < first->first) {
      const Clock::time_point time = first->first;
      changed_.wait_until(lock, time);
      continue;
    }
    const Due due = std::move(first->second);
    due_.erase(first);
    if (due.firing != nullptr) {
      end(*due.firing);
    } else {
      begin(due.entry, due.rule);
    }
  }
}

void Schedule::trigger(std::size_t index, const std::string& rule) {
  const Entry& entry = script_.entries[index];
  progress_[index].reached = true;
  if (entry.after.count() == 0) return begin(index, rule);
  due_.emplace(Clock::now() + entry.after, Due{.entry = index, .rule = rule, .firing = nullptr});
  changed_.notify_all();
}

void Schedule::begin(std::size_t index, const std::string& rule) {
  const Entry& entry = script_.entries[index];
  Firing firing{.entry = index, .rule = rule, .injection = 0, .calls = 0, .start = Clock::now(), .end = {}};
  try {
    firing.injection = injector_.begin(entry.fault);
  } catch (const std::exception& error) {
    progress_[index].trouble = error.what();
    return;
  }
  if (entry.fault.kind == Kind::kKill) firing.end = firing.start;
  firings_.push_back(std::move(firing));
  if (entry.duration) {
    due_.emplace(Clock::now() + *entry.duration, Due{.entry = index, .rule = rule, .firing = &firings_.back()});
    changed_.notify_all();
  }
}

void Schedule::end(Firing& firing) {
  if (firing.end) return;
  try {
    injector_.end(firing.injection);
  } catch (const std::exception& error) {
    progress_[firing.entry].trouble = error.what();
  }
  firing.end = Clock::now();
}

report::FaultRecord Schedule::record(const Firing& firing, Clock::time_point origin) const {
  const Entry& entry = script_.entries[firing.entry];
  return {entry.fault.text, entry.source, firing.rule, seconds(firing.start - origin),
          seconds(firing.end.value_or(Clock::now()) - origin)};
}

bool Schedule::felt_by(const Firing& firing, const RunningRule& rule) const {
  const Fault& fault = script_.entries[firing.entry].fault;
  const auto is_rank = [&](const std::string& name) { return name == rule.near || name == rule.far; };
  if (!fault.host.empty()) {
    return rule.near.starts_with(fault.host + ".") || rule.far.starts_with(fault.host + ".");
  }
  return std::any_of(fault.interfaces.begin(), fault.interfaces.end(), [&](const Interface& interface) {
    return !interface.of_host || is_rank(interface.node + "." + interface.name);
  });
}

bool Schedule::began(std::size_t entry) const {
  if (!progress_[entry].trouble.empty()) return false;
  return std::any_of(firings_.begin(), firings_.end(), [&](const Firing& each) { return each.entry == entry; });
}

}  // namespace plugfest::faults
