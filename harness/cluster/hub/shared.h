// What the thread of a hub shares with the threads that use the hub.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "fabric/system/load_clock.h"
#include "harness/cluster/hub/hub.h"

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
  /// Why it ended, if its host is lost.
  std::string reason = {};
  const std::shared_ptr<LoadClock::Meter> waited = std::make_shared<LoadClock::Meter>(0);
};

struct HubShared {
  mutable std::mutex mutex;
  /// Notified after each change.
  std::condition_variable changed;
  /// All hosts that have joined.
  std::map<std::string, HostStatus> hosts;
  /// Hosts that may join; empty: any.
  std::set<std::string> expected;
};

}  // namespace plugfest::cluster
