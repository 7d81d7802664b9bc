#include "harness/cluster/agents/remote_rank.h"

namespace plugfest::cluster {

bool RemoteProcess::has_ended() const {
  const std::lock_guard lock(shared_.mutex);
  return !reaped_ && rank_->ended;
}

bool RemoteProcess::freeze() {
  if (reaped_) return false;
  {
    const std::lock_guard lock(shared_.mutex);
    rank_->frozen.reset();
  }
  tell_(Kind::kFreeze);
  std::unique_lock lock(shared_.mutex);
  shared_.changed.wait(lock, [&] { return rank_->frozen || rank_->exited; });
  return frozen_ = rank_->frozen.value_or(false);
}

void RemoteProcess::thaw() {
  tell_(Kind::kThaw);
  frozen_ = false;
}

std::optional<int> RemoteProcess::end() {
  if (std::exchange(reaped_, true)) return std::nullopt;
  tell_(Kind::kEnd);
  std::unique_lock lock(shared_.mutex);
  shared_.changed.wait(lock, [&] { return rank_->exited.has_value(); });
  return rank_->exited;
}

std::string RemoteProcess::end_reason() const {
  const std::lock_guard lock(shared_.mutex);
  return rank_->reason;
}

}  // namespace plugfest::cluster
