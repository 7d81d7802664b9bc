// The controller's side of the agents: accepts them, watches them, and starts ranks on their hosts.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "fabric/system/load_clock.h"
#include "harness/cluster/agents/agents.h"
#include "harness/cluster/agents/orders.h"
#include "harness/cluster/agents/remote_rank.h"
#include "harness/cluster/agents/token.h"
#include "harness/control/launcher.h"

namespace plugfest::cluster {

/// Launches ranks on the hosts of agents (control::host_of). The channels of a rank pass through the connection to its
/// agent. The loss of an agent ends only its own ranks. Thread safety: any thread.
class Hub final : public control::Launcher {
 public:
  /// Listens. Errors: std::runtime_error.
  explicit Hub(const HubOptions& options);
  ~Hub() override;
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  /// The address and the token that an agent needs to join.
  const Meeting& meeting() const { return meeting_; }
  /// Only these hosts may join; empty: any.
  void expect(const std::vector<std::string>& names);
  /// Waits until `count` hosts have joined, `seconds` have passed, or `stop` returns true. Returns whether all joined.
  bool wait_for(std::size_t count, double seconds, const std::function<bool()>& stop);
  /// Makes all connected hosts collect their facts, and waits until they have answered or are lost, or `stop` returns
  /// true. Returns the hosts that have joined before the call, by name.
  std::map<std::string, HostStatus> examine(const std::string& plugin, const std::function<bool()>& stop);
  /// All hosts that have joined, by name.
  std::map<std::string, HostStatus> hosts() const;
  HubCounters counters();
  /// Why this host cannot be used; "" if it is connected.
  std::string loss_of(const std::string& host) const;

  /// Gives orders to agents, to `width` of them at the same time, and waits for the answers. `stop`: called from time
  /// to time.
  std::vector<OrderAnswer> delegate(std::vector<Order> orders, std::size_t width, const std::function<bool()>& stop);

  pid_t launch(const control::LaunchRequest& request) override;
  std::unique_ptr<control::ChildProcess> start(const control::LaunchRequest& request) override;

 private:
  /// Runs a task on the hub's thread.
  void post(std::function<void()> task);

  // Called on the hub's thread.
  void run();
  void serve();
  void run_tasks();
  /// Takes the oldest task; null if there is none.
  std::function<void()> next_task();
  void begin_or_fail(const std::shared_ptr<RemoteRank>& rank, const std::string& body,
                     std::map<std::uint32_t, Descriptor>& ends);
  void begin(const std::shared_ptr<RemoteRank>& rank, const std::string& body,
             std::map<std::uint32_t, Descriptor>& ends);
  void process(JoinedAgent& agent, Message message);
  void lose(JoinedAgent& agent, const std::string& reason);
  void add_waits();

  const HubOptions options_;
  Meeting meeting_;
  HubShared shared_;
  /// Guarded by HubShared::mutex.
  std::deque<std::function<void()>> tasks_;
  const Descriptor wake_;
  // Only the hub's thread uses these.
  Agents agents_;
  Orders orders_;
  std::uint32_t next_rank_ = 1;
  bool finishing_ = false;
  LoadClock clock_{LoadClock::Own::kThread};
  const Nanoseconds started_ns_ = now_ns();
  Nanoseconds waited_ns_ = 0;
  std::thread thread_;
};

}  // namespace plugfest::cluster
