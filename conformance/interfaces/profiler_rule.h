// Base of the rules about profiler plugins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/interfaces/interface_rule.h"
#include "conformance/interfaces/profiler_events.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

class ProfilerRule : public InterfaceRule {
 protected:
  /// The process of the rule, which has loaded the plugin.
  Rank new_rank() { return near_rank({.state = RankState::kLoaded, .fresh = true}); }

  /// The outcome of init for communicator `number`. As in NCCL, its context is NULL before, and the mask is 0 only
  /// before the first init of the process. `named`: whether the communicator has a name.
  CallOutcome try_init(Rank& rank, int number, bool named = true);
  /// Errors: `NotApplicable` if the first init failed, as NCCL then continues without the profiler.
  void require_first_init(const CallOutcome& outcome);
  static constexpr int kAnyEvent = ~0, kNoEvent = 0;
  /// Errors: as require_first_init(); `NotApplicable` if the mask has none of `events`, except for kNoEvent.
  ProfiledCommunicator open(Rank& rank, int number = 0, int events = kAnyEvent);
  /// Calls finalize as NCCL does, which ignores its result and needs a context.
  void close(Rank& rank, const ProfiledCommunicator& communicator);

  /// Operations of all kinds. The script contains only the events that the mask asks for.
  EventScript operations(Rank& rank, const ProfiledCommunicator& communicator, bool named = true);
  /// Makes each call on its thread. Returns the events whose handle startEvent did not write, each once. A result other
  /// than Success is a warning. Errors: Deviation, but not `CallFailed`.
  std::vector<std::string> play(Rank& rank, EventScript& script);
  /// Makes one call. Returns whether startEvent wrote the handle.
  bool play(Rank& rank, EventScript& script, const EventScript::Call& call);

 private:
  int mask_ = 0;
};

}  // namespace plugfest::conformance
