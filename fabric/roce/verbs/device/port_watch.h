// Tells when a NIC's port goes up or down or its GIDs change.
#pragma once

#include <infiniband/verbs.h>

#include <sys/types.h>

#include <functional>
#include <thread>

#include "fabric/roce/verbs/device/interface.h"

namespace plugfest::roce::verbs {

/// Watches one interface of the network namespace that it is made in, from a thread of its own that sleeps until the
/// kernel announces a change.
class PortWatch {
 public:
  using OnChange = std::function<void(const Interface&)>;
  using OnEvent = std::function<void(ibv_event_type)>;

  /// `on_change` gets the interface as it is now, before the events that follow from it.
  /// `on_event` gets IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR or IBV_EVENT_GID_CHANGE on the watch's thread; what
  /// happened before the constructor returns is no event. Errors: std::system_error.
  PortWatch(int interface_index, OnChange on_change, OnEvent on_event);

  /// After this no event comes any more.
  ~PortWatch();

  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;

 private:
  void watch();
  void compare();

  const int interface_index_;
  const OnChange on_change_;
  const OnEvent on_event_;
  int announcements_ = -1;  ///< rtnetlink socket
  int stop_ = -1;           ///< eventfd
  Interface last_;          ///< as the program was told
  const pid_t owner_;
  std::thread thread_;
};

}  // namespace plugfest::roce::verbs
