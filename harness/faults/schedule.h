// Begins and ends the faults of a script at their times and steps, and keeps a record of that.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "harness/control/record.h"
#include "harness/faults/injector.h"
#include "harness/faults/script.h"
#include "harness/report/results.h"

namespace plugfest::faults {

/// One run of a script. A fault at a step begins before the call goes out: the rule waits for it, so that it meets the
/// same calls every time. Thread safety: any thread.
class Schedule : public control::CallObserver {
 public:
  /// All but `next` must be given, and outlive it. `next`: who is to be told of calls too; null for nobody.
  Schedule(const Script& script, Injector& injector, control::CallObserver* next);
  ~Schedule() override;  ///< ends the run

  /// The first rule is about to begin. Errors: std::runtime_error when a fault that is to be there from the start
  /// cannot be made.
  void begin_run();
  /// `near`, `far`: the rule's ranks, "a.eth0". No two rules that run share one.
  void begin_rule(const std::string& rule, const std::string& near, const std::string& far);
  /// Ends what began in its course. Returns all faults that could be felt by its ranks, in seconds since it began.
  std::vector<report::FaultRecord> end_rule(const std::string& rule);
  /// All rules have ended. Ends all faults.
  void end_run();

  void before_call(const std::string& rank, const std::string& call) override;
  void on_call(const std::string& rank, const control::CallRecord& call) override;

  /// In the order in which they began; in seconds since the run did.
  std::vector<report::FaultRecord> records() const;
  /// CLOCK_MONOTONIC of the run's begin.
  std::int64_t origin_ns() const;
  /// Entries that never began; for after the run.
  std::vector<report::MissedFault> missed() const;

 private:
  using Clock = std::chrono::steady_clock;

  /// A rule that runs, and the calls that it has made so far, by entry.
  struct RunningRule {
    std::string near;
    std::string far;
    Clock::time_point start;
    std::map<std::size_t, unsigned> calls;
  };

  /// A fault that has begun.
  struct Firing {
    std::size_t entry = 0;
    std::string rule;
    std::uint64_t injection = 0;
    unsigned calls = 0;  ///< of those that `until` counts
    Clock::time_point start;
    std::optional<Clock::time_point> end;
  };

  /// Something to do at a time: to begin an entry, or to end a firing.
  struct Due {
    std::size_t entry = 0;
    std::string rule;
    Firing* firing = nullptr;
  };

  /// What is known of an entry that has not begun yet.
  struct Progress {
    bool rule_ran = false;
    unsigned most_calls = 0;
    bool reached = false;  ///< the step came, and with `after` the rule ended too soon
    std::string trouble;   ///< why it could not be made
  };

  void serve();
  void trigger(std::size_t entry, const std::string& rule);
  void begin(std::size_t entry, const std::string& rule);
  void end(Firing& firing);
  report::FaultRecord record(const Firing& firing, Clock::time_point origin) const;
  bool felt_by(const Firing& firing, const RunningRule& rule) const;
  bool began(std::size_t entry) const;

  const Script& script_;
  Injector& injector_;
  control::CallObserver* const next_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> start_;
  std::optional<Clock::time_point> end_;
  std::map<std::string, RunningRule> rules_;
  std::list<Firing> firings_;
  std::multimap<Clock::time_point, Due> due_;
  std::vector<Progress> progress_;
  std::thread timer_;
};

}  // namespace plugfest::faults
