// Ranks on the hosts of agents, and state shared by the thread of a hub and the threads that use the hub.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "fabric/system/load_clock.h"
#include "harness/cluster/agents/link.h"
#include "harness/control/launcher.h"

namespace plugfest::cluster {

/// State of a rank on an agent's host; guarded by HubShared::mutex.
struct RemoteRank {
  std::uint32_t id = 0;
  std::string host = {};
  bool started = false;
  bool ended = false;
  std::string failure = {};
  std::optional<int> exited = std::nullopt;
  std::optional<bool> frozen = std::nullopt;
  /// The reason of its end, if its host is lost.
  std::string reason = {};
  const std::shared_ptr<LoadClock::Meter> waited = std::make_shared<LoadClock::Meter>(0);
};

struct HostStatus {
  std::string version = {};
  /// JSON, see facts(); empty before `examine`.
  std::string facts = {};
  /// Why the host is lost: "host h3 has not answered for 20 s"; empty while it is connected.
  std::string lost = {};
};

struct HubShared {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, HostStatus> hosts;
  /// Hosts that may join; empty: any.
  std::set<std::string> expected;
};

/// The process of a rank on the host of an agent.
class RemoteProcess final : public control::ChildProcess {
 public:
  /// `tell`: sends a message about the rank, without a body, to its agent. `shared` must outlive the object.
  RemoteProcess(HubShared& shared, std::shared_ptr<RemoteRank> rank, std::function<void(Kind)> tell)
      : shared_(shared), rank_(std::move(rank)), tell_(std::move(tell)) {}
  ~RemoteProcess() override { end(); }

  pid_t pid() const override { return -1; }
  bool reaped() const override { return reaped_; }
  bool frozen() const override { return frozen_; }
  bool has_ended() const override {
    const std::lock_guard lock(shared_.mutex);
    return !reaped_ && rank_->ended;
  }
  bool freeze() override {
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
  void thaw() override {
    tell_(Kind::kThaw);
    frozen_ = false;
  }
  std::optional<int> end() override {
    if (std::exchange(reaped_, true)) return std::nullopt;
    tell_(Kind::kEnd);
    std::unique_lock lock(shared_.mutex);
    shared_.changed.wait(lock, [&] { return rank_->exited.has_value(); });
    return rank_->exited;
  }
  std::shared_ptr<const LoadClock::Meter> waited() const override { return rank_->waited; }
  std::string end_reason() const override {
    const std::lock_guard lock(shared_.mutex);
    return rank_->reason;
  }

 private:
  HubShared& shared_;
  const std::shared_ptr<RemoteRank> rank_;
  const std::function<void(Kind)> tell_;
  bool reaped_ = false;
  bool frozen_ = false;
};

}  // namespace plugfest::cluster
