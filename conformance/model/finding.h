// From a deviation in a long run to a short schedule that shows it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "conformance/model/player.h"
#include "conformance/model/schedule.h"

namespace plugfest::model {

/// A schedule that shows a deviation.
struct Finding {
  Schedule schedule;
  Deviation deviation;
  /// Runs of the schedule at the end, each on new ranks, and those with a deviation. 0 failures: the search did
  /// not repeat it, and `schedule` is the one that ran first.
  unsigned runs = 0;
  unsigned failures = 0;
  /// Messages that arrived before the deviation in the last run that had one.
  std::uint64_t messages = 0;
  /// Schedules that were tried.
  std::uint64_t tried = 0;
};

/// Runs schedules on ranks that have run nothing before.
class Examiner {
 public:
  /// `quick`: with a short time limit, for the search. `patient`: with the usual limit, which decides.
  /// The search takes about `limit`. `stop` and what the stages refer to must outlive the examiner.
  Examiner(const Stage& quick, const Stage& patient, const std::atomic<bool>& stop,
           std::chrono::steady_clock::duration limit)
      : quick_(quick), patient_(patient), stop_(stop), limit_(limit) {}

  /// `schedule` showed `deviation` after its ranks had received `before` messages. Once `stop` is true, returns the
  /// best so far. Errors: as play(), but not Interrupted.
  Finding examine(const Schedule& schedule, const Deviation& deviation, std::uint64_t before);

 private:
  /// Runs on new ranks. Nothing once the time is up.
  std::optional<Played> run(const Stage& stage, const Schedule& schedule);
  /// Runs it up to `attempts` times. Returns the messages that arrived before a deviation; nothing for no deviation.
  std::optional<std::uint64_t> fails(const Schedule& schedule, unsigned attempts);

  const Stage quick_;
  const Stage patient_;
  const std::atomic<bool>& stop_;
  const std::chrono::steady_clock::duration limit_;
  std::chrono::steady_clock::time_point end_;
  std::uint64_t tried_ = 0;
};

/// Repeats each transfer so often that at least `messages` are sent; limited to 2000000.
Schedule lengthened(Schedule schedule, std::uint64_t messages);

}  // namespace plugfest::model
