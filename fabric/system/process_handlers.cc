#include "fabric/system/process_handlers.h"

#include <pthread.h>

#include <cstdlib>
#include <vector>

namespace plugfest {
namespace {

// Never destroyed, because the process may fork while it exits.
struct Registry {
  std::mutex mutex;
  std::vector<ProcessHandlers*> handlers;  ///< the newest first
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

void before_fork() {
  registry().mutex.lock();
  for (ProcessHandlers* const handlers : registry().handlers) handlers->before_fork();
}
void after_fork_in_parent() {
  for (ProcessHandlers* const handlers : registry().handlers) handlers->after_fork_in_parent();
  registry().mutex.unlock();
}
void after_fork_in_child() {
  std::erase_if(registry().handlers, [](ProcessHandlers* handlers) { return !handlers->on_fork_in_child(); });
  registry().mutex.unlock();
}

// A program may exit without destroying its NICs.
void before_exit() {
  const std::lock_guard lock(registry().mutex);
  for (ProcessHandlers* const handlers : registry().handlers) handlers->on_exit();
}

// When the library is loaded, so that programs register their handlers later: a program's lock that is held during a
// call of the library is then taken first.
[[gnu::constructor]] void on_load() { register_fork_handlers(); }

}  // namespace

void register_fork_handlers() {
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(registered);
}

ForkGuard::ForkGuard(ProcessHandlers& handlers) : handlers_(handlers) {
  static const int at_exit = std::atexit(before_exit);
  static_cast<void>(at_exit);
  const std::lock_guard lock(registry().mutex);
  registry().handlers.insert(registry().handlers.begin(), &handlers);
}

ForkGuard::~ForkGuard() {
  const std::lock_guard lock(registry().mutex);
  std::erase(registry().handlers, &handlers_);
}

}  // namespace plugfest
