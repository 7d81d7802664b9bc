#include "harness/kernels/run/idle.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace plugfest::kernels {

void Idle::pause() {
  ++looks_;
  constexpr std::chrono::microseconds kShortest{10}, kLongest{500};
  if (sleep_.count() == 0) {
    // Another thread of this computer is often about to write the word.
    ::sched_yield();
    if (looks_ % 4 == 0) sleep_ = kShortest;
    return;
  }
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(sleep_ * 2, kLongest);
}

void Idle::end(bool changed) {
  looks_ = 0;
  if (changed) sleep_ = std::chrono::microseconds(0);
}

}  // namespace plugfest::kernels
