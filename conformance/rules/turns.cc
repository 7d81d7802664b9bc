#include "conformance/rules/turns.h"

namespace plugfest::conformance {

Turn::Turn(Turns& turns) : turns_(turns) {
  std::unique_lock lock(turns_.mutex_);
  turns_.changed_.wait(lock, [&] { return !turns_.one_is_alone_ && turns_.waiting_ == 0; });
  ++turns_.running_;
}

Turn::~Turn() {
  const std::lock_guard lock(turns_.mutex_);
  --turns_.running_;
  if (alone_) turns_.one_is_alone_ = false;
  turns_.changed_.notify_all();
}

void Turn::be_alone() {
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
