// NICs that a fork must not leave usable in the child, and that the end of the process finds in use.
#pragma once

namespace plugfest::roce {

class NicEngine;

/// Has `on_fork_in_child()` called in every child that this process forks while the object lives: sockets and thread
/// stay the parent's. And `on_exit()` if the process ends by exit() meanwhile. Thread safety: any thread.
class ForkGuard {
 public:
  explicit ForkGuard(NicEngine& nic);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  NicEngine& nic_;
};

}  // namespace plugfest::roce
