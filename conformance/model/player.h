// Runs schedules on the ranks of a session.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/model/schedule.h"
#include "harness/control/session.h"
#include "harness/faults/injector.h"
#include "harness/faults/script.h"

namespace plugfest::model {

/// What a plugin did that the model does not allow.
struct Deviation {
  /// One line: "rank b.eth0: 1000 bytes with tag 7: sizes[0] = 4096".
  std::string what;
  /// The step in which it happened; nothing for a crash or a call that hangs.
  std::optional<std::size_t> step;
  /// Calls, log and output of the ranks.
  control::Evidence evidence;
};

/// The run of one schedule.
struct Played {
  /// Messages and bytes that were received, and whose size and contents were compared.
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::optional<Deviation> deviation;
};

/// Where schedules run.
struct Stage {
  control::Session& session;
  /// Null: a schedule with faults of packets cannot run.
  faults::Injector* injector = nullptr;
};

/// The faults of a schedule. Errors: std::runtime_error for a text that --faults does not take, and for other faults
/// than those of packets.
faults::Script packet_faults(const Schedule& schedule, const topology::Graph& graph);

/// maxRecvs of the endpoint's device; at least 1.
unsigned max_receives_of(control::Endpoint& endpoint);

/// Runs a schedule once. All ranks run at the same time; what they call next never depends on the time that a call
/// takes. After a deviation the session has no rank of the schedule left.
/// Errors: control::Interrupted once `stop` is true; HarnessError; those of Lease::endpoint; std::runtime_error for a
/// group that is wider than the plugin's maxRecvs.
Played play(const Stage& stage, const Schedule& schedule, const std::atomic<bool>& stop);

}  // namespace plugfest::model
