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

/// Whether a host may have this name. Names are parts of ranks' names, of file names in the archive, and of texts for a
/// terminal.
bool is_valid_name(const std::string& host);

struct HubOptions {
  std::string address;
  /// An agent that does not answer for this time is lost.
  double host_seconds = 20;
  /// Default: a random one.
  std::optional<Token> token = std::nullopt;
};

/// Messages between the controller and all agents.
struct HubCounters {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  /// Messages among `messages` that only check the connections of agents, and their answers.
  std::uint64_t watching = 0;
  /// Connections whose peer did not prove that it knows the token, or has a name that has joined already or is not
  /// expected.
  std::uint64_t refused = 0;
};

struct JoinedAgent {
  std::string name = {};
  std::unique_ptr<Link> link = {};
  Nanoseconds heard_ns = 0;
  Nanoseconds silent_ns = 0;  ///< longer than usual; counted as a wait of its ranks
  struct Rank {
    std::shared_ptr<RemoteRank> state;
    std::unique_ptr<Relay> relay;
  };
  /// The ranks of the agent, by Message::rank.
  std::map<std::uint32_t, Rank> ranks = {};
};

/// Accepts agents, and keeps a connection until its peer has proved that it knows the token and has sent kHello. Thread
/// safety: none.
class Agents {
 public:
  /// Takes a message of an agent, other than those about its connection.
  using Process = std::function<void(JoinedAgent& agent, Message message)>;
  /// Reports which agent was removed, and why: "host h3 has not answered for 20 s".
  using Lost = std::function<void(JoinedAgent& agent, const std::string& reason)>;

  /// Listens. `options` and `shared` must outlive the object. Errors: std::runtime_error.
  Agents(const HubOptions& options, const Token& token, HubShared& shared, Process process, Lost lost);

  std::uint16_t port() const { return port_; }
  /// nullptr if the host has not joined or is lost.
  JoinedAgent* find(const std::string& host);
  std::map<std::string, JoinedAgent>& all() { return agents_; }
  HubCounters counters() const;

  /// Appends the descriptors to poll.
  void add_to(std::vector<pollfd>& polled) const;
  /// Reads, writes and accepts as permitted by the descriptors from `next` on, which `add_to` appended.
  void serve(std::vector<pollfd>::const_iterator next);
  /// Pings all agents every second, and removes lost ones.
  void watch();
  /// Removes all agents.
  void lose_all(const std::string& reason);
  /// Ends all agents. Waits at most a second for unsent data; agents also end when the connection closes.
  void finish();

 private:
  /// A connection whose peer has not sent its host name.
  struct Candidate {
    std::unique_ptr<Link> link;
    Nanoseconds deadline_ns = 0;
  };

  void serve(Candidate& candidate);
  void lose(std::map<std::string, JoinedAgent>::iterator agent, const std::string& reason);
  void accept_all();
  bool admit(std::unique_ptr<Link>& link, const std::string& version);
  void process(JoinedAgent& agent, std::vector<Message> messages);
  std::string reason_of_loss(const JoinedAgent& agent) const;

  const HubOptions& options_;
  const Token token_;
  HubShared& shared_;
  const Process process_;
  const Lost lost_;
  Descriptor listener_;
  std::uint16_t port_ = 0;
  std::list<Candidate> candidates_;
  std::map<std::string, JoinedAgent> agents_;
  Nanoseconds asked_ns_ = 0;
  Nanoseconds accepts_from_ns_ = 0;  ///< time from which connections are accepted, after no descriptor was left
  /// The counters of closed connections.
  HubCounters counters_;
};

}  // namespace plugfest::cluster
