// How a block waits while none of its threads can continue.
#pragma once

#include <chrono>

namespace plugfest::kernels {

/// Sleeps for increasing times between checks of the watched words. Thread safety: one thread.
class Idle {
 public:
  /// Whether the threads must run although no word has changed, since they may also read a clock.
  bool long_enough() const { return looks_ >= kLooks; }
  /// Sleeps until the next check.
  void pause();
  /// Call it when the threads run again. `changed`: whether a word has changed; the next wait then begins with short
  /// sleeps.
  void end(bool changed);

 private:
  static constexpr unsigned kLooks = 64;

  unsigned looks_ = 0;
  std::chrono::microseconds sleep_{0};
};

}  // namespace plugfest::kernels
