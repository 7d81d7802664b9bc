// The descriptors that startEvent of a profiler gets, in the layout of each version.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "harness/control/rank.h"
#include "harness/wire/workloads.h"

namespace plugfest::conformance {

/// The slot of an event's handle in a script of calls. Slot 0 holds NULL.
using EventSlot = std::uint32_t;

struct EventParents {
  EventSlot parent = 0;
  EventSlot group = 0;  ///< v5 and later: parentGroup
  /// If not 0: a proxy operation of another process, with this address as its parent.
  std::uint64_t foreign = 0;
};

/// Makes descriptors with valid values. Source: include/plugin/profiler/profiler_v1.h to profiler_v7.h.
class ProfilerDescriptors {
 public:
  /// Texts lie in memory of `rank` that is never freed, as in NCCL.
  explicit ProfilerDescriptors(control::Rank& rank);

  wire::CallScript::Argument describe(std::uint64_t type, const EventParents& parents) const;
  /// v1 to v3: descriptors have no name of the communicator.
  void leave_out_names() { named_ = false; }
  /// The address of what a net plugin reports about its event.
  std::uint64_t net_event() const { return net_event_; }

 private:
  class Descriptor;
  void add_members(Descriptor& descriptor, std::uint64_t type, const EventParents& parents) const;
  void add_collective(Descriptor& descriptor, EventSlot group) const;
  void add_point_to_point(Descriptor& descriptor, EventSlot group) const;

  int api_;
  std::int32_t pid_;
  std::map<std::string, std::uint64_t, std::less<>> texts_;
  std::uint64_t buffer_ = 0, net_event_ = 0;
  bool named_ = true;
};

}  // namespace plugfest::conformance
