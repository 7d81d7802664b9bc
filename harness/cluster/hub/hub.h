// The controller's side of the agents: accepts them, watches them, and starts ranks on their hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/cluster/agent/agent.h"
#include "harness/control/process/launcher.h"

namespace plugfest::cluster {

struct HubOptions {
  /// The IPv4 address to listen on. Agents reach the controller there, and strangers only there.
  std::string address;
  /// An agent that has not answered for so long is lost.
  double host_seconds = 20;
  /// How many agents connect to the controller. They carry the messages of the others.
  std::size_t fan_out = 32;
  /// Default: a random one.
  std::optional<Token> token = std::nullopt;
};

/// What is known about one host.
struct HostStatus {
  /// Of the agent's plugfest.
  std::string version = {};
  /// JSON, see agent/facts.h; empty before `examine`.
  std::string facts = {};
  /// "host h3 has not answered for 20 s"; empty while it is connected.
  std::string lost = {};
};

/// Messages between the controller and all agents.
struct HubCounters {
  std::uint64_t messages = 0;
  /// What carried them: each has some messages, and one MAC.
  std::uint64_t batches = 0;
  std::uint64_t bytes = 0;
  /// The most that there were at the same time.
  std::uint64_t connections = 0;
  /// Those among `messages` that only ask agents whether they are there, and the answers.
  std::uint64_t watching = 0;
  std::uint64_t watching_batches = 0;
  /// Connections that did not prove to know the token, or came from a host that had an agent already.
  std::uint64_t refused = 0;
};

/// Launches ranks on the hosts of agents (control::host_of). The channels of a rank pass through the connection to its
/// agent, or to the agent that carries the messages of that one. Loss of an agent ends its ranks and nothing else:
/// agents whose messages it carried connect to the controller. Thread safety: any thread.
class Hub final : public control::Launcher {
 public:
  /// Listens. Errors: std::runtime_error.
  explicit Hub(const HubOptions& options);
  /// Ends all agents.
  ~Hub() override;
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  /// What an agent needs to join.
  const Meeting& meeting() const;
  /// Only these hosts may join; empty: any.
  void expect(const std::vector<std::string>& names);
  /// Waits until `count` hosts have joined, `seconds` have passed, or `stop` returns true. Returns whether all joined.
  bool wait_for(std::size_t count, double seconds, const std::function<bool()>& stop);
  /// Lets all hosts that are connected find out their facts, and waits until they have or are lost.
  void examine(const std::string& plugin);
  /// All hosts that have joined, by name.
  std::map<std::string, HostStatus> hosts() const;
  HubCounters counters() const;
  /// Why nothing can be done with this host; "" if it is connected.
  std::string loss_of(const std::string& host) const;

  /// Either the answer of an agent or, if there will be none, the reason. Both are empty after `stop`.
  struct Answer {
    std::string text = {};
    std::string failure = {};
  };
  /// For the agent of `host`: to measure a pair with the agent of `peer`. `text`: a PairOrder (see
  /// measure/delegation.h). Its answer is a PairReport.
  struct Order {
    std::string host, peer;
    std::string text;
  };
  /// Gives orders to agents, to `width` of them at the same time, and waits for the answers. `stop`: asked from time to
  /// time.
  std::vector<Answer> delegate(std::vector<Order> orders, std::size_t width, const std::function<bool()>& stop);

  pid_t launch(const control::LaunchRequest& request) override;
  std::unique_ptr<control::ChildProcess> start(const control::LaunchRequest& request) override;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace plugfest::cluster
