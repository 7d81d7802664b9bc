#include "conformance/rules/turns.h"

namespace plugfest::conformance {

Turn::Turn(Turns& turns, bool alone) : turns_(turns), alone_(alone) {
  std::unique_lock lock(turns_.mutex_);
  if (alone) ++turns_.starting_alone_;
  turns_.changed_.wait(lock, [&] {
    const bool may_start = alone ? turns_.running_ == 0 : turns_.starting_alone_ == 0;
    return may_start && !turns_.one_is_alone_ && turns_.waiting_ == 0;
  });
  ++turns_.running_;
  if (!alone) return;
  --turns_.starting_alone_;
  turns_.one_is_alone_ = true;
}

Turn::~Turn() {
  const std::lock_guard lock(turns_.mutex_);
  --turns_.running_;
  if (alone_) turns_.one_is_alone_ = false;
  turns_.changed_.notify_all();
}

void Turn::be_alone() {
  became_alone_ = true;
  if (alone_) return;
  std::unique_lock lock(turns_.mutex_);
  ++turns_.waiting_;
  --turns_.running_;
  turns_.changed_.notify_all();
  turns_.changed_.wait(lock, [&] { return turns_.running_ == 0; });
  ++turns_.running_;
  --turns_.waiting_;
  alone_ = turns_.one_is_alone_ = true;
}

}  // namespace plugfest::conformance
