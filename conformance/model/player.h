// Runs schedules on the ranks of a session, and shrinks a schedule that shows a deviation.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "conformance/model/schedule.h"
#include "harness/control/session.h"
#include "harness/faults/injector.h"
#include "harness/faults/script.h"

namespace plugfest::model {

/// Behavior of a plugin that the model does not allow.
struct Deviation {
  /// One line: "rank b.eth0: 1000 bytes with tag 7: sizes[0] = 4096".
  std::string what;
  /// The step at which the deviation appeared; nothing for a crash or a call that hangs.
  std::optional<std::size_t> step;
  control::Evidence evidence;
};

struct Played {
  /// Messages or operations, and bytes, that were received, and whose size and contents were compared.
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::optional<Deviation> deviation;
};

/// The session and fabric on which schedules run.
struct Stage {
  control::Session& session;
  /// Null: a schedule with packet faults cannot run.
  faults::Injector* injector = nullptr;
};

/// The faults of a schedule. Errors: std::runtime_error for a text that --faults does not accept, and for faults other
/// than packet faults.
faults::Script packet_faults(const Schedule& schedule, const topology::Graph& graph);

/// maxRecvs of the endpoint's device; at least 1.
unsigned max_receives_of(control::Endpoint& endpoint);

/// Runs a schedule once. All ranks run at the same time; their next call never depends on the duration of a call. After
/// a deviation the session keeps no rank of the schedule.
/// Errors: control::Interrupted once `stop` is true; HarnessError; whatever Lease::endpoint throws; std::runtime_error
/// for a group that is wider than the plugin's maxRecvs.
Played play(const Stage& stage, const Schedule& schedule, const std::atomic<bool>& stop);

struct Finding {
  Schedule schedule;
  Deviation deviation;
  /// Runs of `schedule` at the end, each on new ranks, and the number of them that showed a deviation. 0 failures: the
  /// search did not reproduce it, and `schedule` is the one that ran first.
  unsigned runs = 0;
  unsigned failures = 0;
  /// Messages that arrived before the deviation in the last run that had one.
  std::uint64_t messages = 0;
  std::uint64_t tried = 0;
};

/// Shrinks schedules; each run uses new ranks.
class Examiner {
 public:
  /// `quick`: has a short time limit, for the search. `deciding`: has the usual limit and decides. The search takes
  /// about `limit`. `stop` and the objects that the stages refer to must outlive the examiner.
  Examiner(const Stage& quick, const Stage& deciding, const std::atomic<bool>& stop,
           std::chrono::steady_clock::duration limit)
      : quick_(quick), deciding_(deciding), stop_(stop), limit_(limit) {}

  /// `schedule` showed `deviation` after its ranks had received `before` messages. Once `stop` is true, returns the
  /// best result so far. Errors: as play(), except Interrupted.
  Finding examine(const Schedule& schedule, const Deviation& deviation, std::uint64_t before);

 private:
  /// Runs `schedule` on new ranks. Nothing once the time is up.
  std::optional<Played> run(const Stage& stage, const Schedule& schedule);
  /// Runs `schedule` up to `attempts` times. Returns the number of messages before a deviation; nothing for no
  /// deviation.
  std::optional<std::uint64_t> fails(const Schedule& schedule, unsigned attempts);

  const Stage quick_;
  const Stage deciding_;
  const std::atomic<bool>& stop_;
  const std::chrono::steady_clock::duration limit_;
  std::chrono::steady_clock::time_point end_;
  std::uint64_t tried_ = 0;
};

/// Increases the repetitions of each transfer until at least `messages` are sent; at most 2000000.
Schedule lengthened(Schedule schedule, std::uint64_t messages);

}  // namespace plugfest::model
