// The calls that NCCL makes of a profiler, as data: events of collectives, point-to-point operations and
// proxies.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "conformance/interfaces/profiler_descriptors.h"
#include "harness/abi/profiler.h"
#include "harness/control/rank.h"
#include "harness/wire/workloads.h"

namespace plugfest::conformance {

/// The bits of the activation mask that the version knows.
int known_events(int api);
/// "ProxyStep"; "type 0x100000" for a type that is not an event.
std::string event_name(std::uint64_t type);

/// A communicator of a profiler: what init has stored.
struct ProfiledCommunicator {
  std::uint64_t context = 0;
  int mask = 0;
};

/// Calls in the order in which NCCL makes them. Events that the mask does not ask for, directly or as parents of
/// others, are left out by the functions add_….
///
/// Source: plugin/profiler.cc and its callers in enqueue.cc, group.cc, proxy.cc and ce_coll.cc.
class EventScript {
 public:
  /// The slot of an event's handle.
  using Event = EventSlot;
  static constexpr Event kNull = 0;  ///< no event: its handle is NULL

  /// `rank` must not be shared with other rules: texts stay in its memory.
  EventScript(control::Rank& rank, const ProfiledCommunicator& communicator);

  struct Call {
    wire::CallScript::Step step;
    /// Whether the call is made on the thread of the proxy.
    bool in_proxy = false;
    /// The event that the call starts; kNull for other calls.
    Event starts = kNull;
  };
  const std::vector<Call>& calls() const { return calls_; }
  /// The script for start_script().
  wire::CallScript repeated(std::uint64_t count, bool empty = false) const;
  /// The script for start_script() with as many repetitions as start about `events` events.
  wire::CallScript with_events(std::uint64_t events) const;
  /// Handles by slot.
  std::vector<std::uint64_t>& slots() { return slots_; }

  Event start(std::uint64_t type, const EventParents& parents);
  Event start(std::uint64_t type, Event parent = kNull) { return start(type, EventParents{.parent = parent}); }
  /// `value`: the arguments of the state.
  void record(Event event, int state, std::uint64_t value = 0);
  void record_without_arguments(Event event, int state);
  /// NCCL does not call it for an event whose handle is NULL.
  void stop(Event event);
  /// The following calls are made on the thread of the proxy.
  void enter_proxy(bool in_proxy = true) { in_proxy_ = in_proxy; }

  /// A collective or a point-to-point operation from the application's call to the last network transfer.
  void add_operation(abi::ProfilerEvent task);
  /// A collective of the copy engine, v6 and later.
  void add_copy_engine_operation();
  /// The events of the proxy's thread that belong to no operation.
  void add_control();
  /// A proxy operation with its transfers. `parents`: the operation's, or `foreign`.
  void add_proxy_operation(const EventParents& parents, bool sends);

  /// v1 to v3: descriptors have no name of the communicator.
  void leave_out_names() { descriptors_.leave_out_names(); }
  /// Whether NCCL starts events of one of these types.
  bool wants(int events) const { return (mask_ & events) != 0; }

 private:
  Event start_if(int events, std::uint64_t type, const EventParents& parents);
  std::pair<Event, Event> start_api(bool collective);
  void add(std::string function, std::string about, std::vector<wire::CallScript::Argument> arguments,
           Event unless_null, Event starts);

  int api_;
  int mask_;
  ProfilerDescriptors descriptors_;
  bool in_proxy_ = false;
  std::vector<Call> calls_;
  std::vector<std::uint64_t> slots_;
  std::map<Event, std::string> names_;
};

}  // namespace plugfest::conformance
