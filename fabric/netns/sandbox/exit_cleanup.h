// Something that is done when this process has ended, however it ended.
#pragma once

#include <sys/types.h>

#include <functional>

namespace plugfest::netns {

/// For what the kernel does not remove by itself. A small process waits for the end of this object or of the whole
/// process and then calls the function; descriptors that are open at construction stay open in it until it is done, so
/// a lock that is held by one is held that long.
class ExitCleanup {
 public:
  /// `function` runs in the other process and may not throw. Errors: std::runtime_error.
  explicit ExitCleanup(std::function<void()> function);
  /// Has it done now, and returns when it is.
  ~ExitCleanup();
  ExitCleanup(const ExitCleanup&) = delete;
  ExitCleanup& operator=(const ExitCleanup&) = delete;

 private:
  int lifeline_ = -1;
  pid_t process_ = -1;
};

}  // namespace plugfest::netns
