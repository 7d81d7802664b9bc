// Tells whether the interfaces of the current network namespace have changed.
#pragma once

#include <sys/types.h>

#include "fabric/system/file.h"

namespace plugfest::roce::verbs {

/// An rtnetlink socket that receives a notification of each change of a link or address. The kernel sends it before the
/// call that makes the change returns, except for the carrier of a link, which may follow up to a second later. Thread
/// safety: any thread.
class ChangeMonitor {
 public:
  /// Errors: std::system_error.
  ChangeMonitor();

  /// Whether a notification has arrived since the last call. Always true in a child after fork(), which must not take
  /// the notifications of its parent. Never waits.
  bool take_changes();
  /// Becomes readable when a notification arrives.
  int fd() const { return netlink_.get(); }

 private:
  Descriptor netlink_;
  pid_t owner_;
};

}  // namespace plugfest::roce::verbs
