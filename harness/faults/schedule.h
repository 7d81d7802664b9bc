// Begins and ends the faults of a script at their times and steps, and records them.
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

#include "harness/control/call.h"
#include "harness/faults/injector.h"
#include "harness/faults/script.h"
#include "harness/report/results.h"

namespace plugfest::faults {

/// One run of a script. A fault at a step begins before the call is sent: the rule waits until the fault is active, so
/// that it affects the same calls in every run. Thread safety: any thread.
class Schedule : public control::CallObserver {
 public:
  /// All arguments must outlive the schedule. `next`: another observer of calls, or null.
  Schedule(const Script& script, Injector& injector, control::CallObserver* next);
  ~Schedule() override;  ///< calls end_run()

  /// Call it before the first rule begins. Errors: std::runtime_error if a fault of the whole run cannot be injected.
  void begin_run();
  /// Call it before a rule begins. `near_rank`, `far_rank`: the rule's ranks, such as "a.eth0". Concurrent rules have
  /// different ranks.
  void begin_rule(const std::string& rule, const std::string& near_rank, const std::string& far_rank);
  /// Ends the faults that began in the rule. Returns all faults that could affect the hosts of its ranks, in seconds
  /// since the start of the rule.
  std::vector<report::FaultRecord> end_rule(const std::string& rule);
  /// Call it after all rules have ended. Ends all faults.
  void end_run();

  void before_call(const std::string& rank, const std::string& call) override;
  void on_call(const std::string& rank, const control::CallRecord& call) override;

  /// All faults in the order in which they began, in seconds since the start of the run.
  std::vector<report::FaultRecord> records() const;
  /// The time of begin_run() (CLOCK_MONOTONIC, nanoseconds).
  std::int64_t origin_ns() const;
  /// The entries whose fault never began. Call it after end_run().
  std::vector<report::MissedFault> missed() const;
  /// The entries whose fault began, but could affect no rule: none ran on its links or hosts, or no packet passed the
  /// NICs that inject it. Call it after end_run().
  std::vector<report::MissedFault> ineffective() const;

 private:
  using Clock = std::chrono::steady_clock;

  /// A rule in progress, and the number of its calls that match each entry.
  struct RunningRule {
    std::string near_rank;
    std::string far_rank;
    Clock::time_point start;
    std::map<std::size_t, unsigned> calls;
  };

  struct Occurrence {
    std::size_t entry = 0;
    std::string rule;
    std::uint64_t injection = 0;
    std::uint64_t packets = 0;  ///< packets of the fault's NICs before it began
    unsigned calls = 0;         ///< matching calls of `until`
    Clock::time_point start;
    std::optional<Clock::time_point> end;
  };

  /// A timed action: begin an entry, or end an occurrence.
  struct TimedAction {
    std::size_t entry = 0;
    std::string rule;
    Occurrence* occurrence = nullptr;
  };

  /// The progress of an entry, which explains why its fault never began.
  struct Progress {
    bool rule_ran = false;
    unsigned max_calls = 0;
    bool reached = false;      ///< the step was reached; with `after`, the rule then ended before the delay
    std::string error;         ///< the fault could not be injected or ended
    bool had_a_rule = false;   ///< a rule ran on its links or hosts while it was active
    bool had_packets = false;  ///< packets passed the NICs that injected it
  };

  void run_timer();
  void trigger(std::size_t entry, const std::string& rule);
  void begin(std::size_t entry, const std::string& rule);
  void end(Occurrence& occurrence);
  report::FaultRecord record(const Occurrence& occurrence, Clock::time_point origin) const;
  bool affects(const Occurrence& occurrence, const RunningRule& rule) const;
  /// Whether the path of the rule uses the fault's interfaces or hosts.
  static bool is_on_path(const Fault& fault, const RunningRule& rule);
  bool has_begun(std::size_t entry) const;
  std::string why_missed(const Entry& entry, const Progress& progress) const;

  const Script& script_;
  Injector& injector_;
  control::CallObserver* const next_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> start_;
  std::optional<Clock::time_point> end_;
  std::map<std::string, RunningRule> rules_;
  std::list<Occurrence> occurrences_;
  std::multimap<Clock::time_point, TimedAction> timed_actions_;
  std::vector<Progress> progress_;
  std::thread timer_;
};

}  // namespace plugfest::faults
