// Watches the port of a NIC for link and address changes.
#pragma once

#include <infiniband/verbs.h>

#include <sys/types.h>

#include <functional>
#include <thread>

#include "fabric/roce/verbs/device/interface.h"
#include "fabric/system/file.h"

namespace plugfest::roce::verbs {

/// Watches one interface of the current network namespace. Has a thread that waits for rtnetlink notifications.
class PortWatch {
 public:
  using OnChange = std::function<void(const Interface&)>;
  using OnEvent = std::function<void(ibv_event_type)>;

  /// `on_change`: called with the new state of the interface, before the resulting events.
  /// `on_event`: called with IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR or IBV_EVENT_GID_CHANGE.
  /// Both are called on the thread of this object, for changes after construction. Errors: std::system_error.
  PortWatch(int interface_index, OnChange on_change, OnEvent on_event);

  /// Ends the thread; neither function is called afterwards.
  ~PortWatch();

  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;

 private:
  void watch();
  void compare();

  const int interface_index_;
  const OnChange on_change_;
  const OnEvent on_event_;
  ChangeMonitor changes_;
  const Descriptor stop_;  ///< eventfd
  Interface last_;         ///< last reported state
  const pid_t owner_;
  std::thread thread_;
};

}  // namespace plugfest::roce::verbs
