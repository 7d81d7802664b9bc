// Registers NICs with the C library's fork and exit handlers.
#include "fabric/roce/engine/fork_guard.h"

#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "fabric/roce/engine/nic_engine.h"

namespace plugfest::roce {

namespace {

// Never destroyed, because the process may fork while it exits.
struct Registry {
  std::mutex mutex;
  std::vector<NicEngine*> nics;
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

void before_fork() { registry().mutex.lock(); }
void after_fork_in_parent() { registry().mutex.unlock(); }
void after_fork_in_child() {
  for (NicEngine* const nic : registry().nics) nic->on_fork_in_child();
  registry().nics.clear();
  registry().mutex.unlock();
}

// A program may exit without destroying its NICs.
void before_exit() {
  const std::lock_guard lock(registry().mutex);
  for (NicEngine* const nic : registry().nics) nic->on_exit();
}

}  // namespace

ForkGuard::ForkGuard(NicEngine& nic) : nic_(nic) {
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(registered);
  static const int at_exit = std::atexit(before_exit);
  static_cast<void>(at_exit);
  const std::lock_guard lock(registry().mutex);
  registry().nics.push_back(&nic);
}

ForkGuard::~ForkGuard() {
  const std::lock_guard lock(registry().mutex);
  std::erase(registry().nics, &nic_);
}

}  // namespace plugfest::roce
