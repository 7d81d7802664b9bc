// Attributes of a process that the kernel starts for us.
#pragma once

#include <signal.h>
#include <spawn.h>

namespace plugfest {

/// Attributes for posix_spawn: a process group of its own, so that Ctrl-C reaches only the program that started it,
/// with the default actions of all signals and none blocked.
class JobAttributes {
 public:
  JobAttributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~JobAttributes() { posix_spawnattr_destroy(&attributes_); }
  JobAttributes(const JobAttributes&) = delete;
  JobAttributes& operator=(const JobAttributes&) = delete;

  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

}  // namespace plugfest
