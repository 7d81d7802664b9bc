// How a block waits while none of its threads can continue.
#pragma once

#include <chrono>

namespace plugfest::kernels {

/// Sleeps longer and longer between looks at the words that change. Thread safety: one thread.
class Idle {
 public:
  /// Whether the threads shall run although they have seen no change: they may also look at a clock.
  bool long_enough() const { return looks_ >= kLooks; }
  /// Waits until the next look.
  void pause();
  /// The threads run again. `changed`: because of a change, so the next wait begins with short sleeps.
  void end(bool changed);

 private:
  static constexpr unsigned kLooks = 64;

  unsigned looks_ = 0;
  std::chrono::microseconds sleep_{0};
};

}  // namespace plugfest::kernels
