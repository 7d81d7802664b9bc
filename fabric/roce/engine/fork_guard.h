// Tells NICs about fork and exit of the process.
#pragma once

namespace plugfest::roce {

class NicEngine;

/// While the object exists, calls NicEngine::on_fork_in_child() in every child that this process forks, and
/// NicEngine::on_exit() when the process calls exit(). Thread safety: any thread.
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
