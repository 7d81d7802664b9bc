// The descriptor of an rdma_event_channel, and the events that wait there.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <deque>

#include "fabric/system/file.h"

namespace plugfest::rdma_cm {

/// The types of events, as rdma_cm_event_type of rdma/rdma_cma.h, which contradicts rdma/rdma_user_cm.h.
enum class EventType : std::uint32_t {
  kAddressResolved = 0,
  kAddressError = 1,
  kRouteResolved = 2,
  kConnectRequest = 4,
  kConnectResponse = 5,
  kUnreachable = 7,
  kRejected = 8,
  kEstablished = 9,
  kDisconnected = 10,
  kMulticastJoin = 12,
};

/// An event, and the identifier or membership to which the program acknowledges it.
struct Event {
  rdma_ucm_event_resp response = {};
  std::uint32_t owner = 0;
};

/// A queue of events. Its descriptor is readable while there are events. Guarded by the manager's lock.
class Channel {
 public:
  /// Errors: std::system_error.
  Channel();

  /// The descriptor, which the program owns and closes.
  int descriptor() const { return descriptor_; }

  /// The program has closed the descriptor. Threads that wait for an event wait until the process ends, as in the
  /// kernel.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }

  void push(const Event& event);
  bool empty() const { return events_.empty(); }
  /// Precondition: not empty.
  Event pop();
  /// Removes the events of an identifier, and returns them in their order.
  std::deque<Event> remove_events_of(std::uint32_t owner);

 private:
  void signal(bool readable);

  int descriptor_;
  bool closed_ = false;
  std::deque<Event> events_;
};

}  // namespace plugfest::rdma_cm
