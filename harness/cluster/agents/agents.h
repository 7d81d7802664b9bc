// The agents that have joined, each with its connection.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "harness/cluster/agents/link.h"
#include "harness/cluster/agents/relay.h"
#include "harness/cluster/agents/remote_rank.h"
#include "harness/cluster/agents/token.h"

namespace plugfest::cluster {

struct HubOptions {
  /// The IPv4 address to listen on.
  std::string address;
  /// An agent that has not answered for so long is lost.
  double host_seconds = 20;
  /// Default: a random one.
  std::optional<Token> token = std::nullopt;
};

/// Messages between the controller and all agents.
struct HubCounters {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  /// Those among `messages` that only ask agents whether they are there, and the answers.
  std::uint64_t watching = 0;
  /// Connections whose peer did not prove to know the token, or has a name that has joined already or is not expected.
  std::uint64_t refused = 0;
};

struct AgentHere {
  std::string name = {};
  std::unique_ptr<Link> link = {};
  Nanoseconds heard_ns = 0;
  Nanoseconds silent_ns = 0;  ///< longer than usual; counted as a wait of its ranks
  struct Rank {
    std::shared_ptr<RemoteRank> state;
    std::unique_ptr<Relay> relay;
  };
  /// By Message::rank.
  std::map<std::uint32_t, Rank> ranks = {};
};

/// Accepts agents, and keeps a connection until its peer has proved that it knows the token and has sent kHello. Thread
/// safety: none.
class Agents {
 public:
  /// Takes a message of an agent, other than those about its connection.
  using Process = std::function<void(AgentHere& agent, Message message)>;
  /// Is told which agent was removed, and why: "host h3 has not answered for 20 s".
  using Lost = std::function<void(AgentHere& agent, const std::string& reason)>;

  /// Listens. `options` and `shared` must outlive the object. Errors: std::runtime_error.
  Agents(const HubOptions& options, const Token& token, HubShared& shared, Process process, Lost lost);

  std::uint16_t port() const { return port_; }
  /// nullptr if it has not joined or is lost.
  AgentHere* find(const std::string& host);
  /// By the names of hosts.
  std::map<std::string, AgentHere>& all() { return agents_; }
  HubCounters counters() const;

  /// Appends what to poll.
  void add_to(std::vector<pollfd>& polled) const;
  /// Reads, writes and accepts as the descriptors from `next` on permit, which `add_to` appended.
  void serve(std::vector<pollfd>::const_iterator next);
  /// Asks all agents every second whether they are there, and removes those that are lost.
  void watch();
  /// Ends all agents. Waits a second at most for what is not sent yet; agents also end when the connection closes.
  void finish();

 private:
  /// A connection whose peer has not said which host it is.
  struct Candidate {
    std::unique_ptr<Link> link;
    Nanoseconds deadline_ns = 0;
  };

  void serve(Candidate& candidate);
  void accept_all();
  bool admit(std::unique_ptr<Link>& link, const std::string& version);
  void process(AgentHere& agent, std::vector<Message> messages);
  std::string reason_of_loss(const AgentHere& agent) const;

  const HubOptions& options_;
  const Token token_;
  HubShared& shared_;
  const Process process_;
  const Lost lost_;
  Descriptor listener_;
  std::uint16_t port_ = 0;
  std::list<Candidate> candidates_;
  std::map<std::string, AgentHere> agents_;
  Nanoseconds asked_ns_ = 0;
  /// Of connections that are closed.
  HubCounters counters_;
};

}  // namespace plugfest::cluster
