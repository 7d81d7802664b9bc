// The agents that have joined, and the connections that carry their messages: the controller has connections with some
// agents, which carry the messages of the others.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric/system/clock.h"
#include "harness/cluster/hub/hub.h"
#include "harness/cluster/hub/shared.h"
#include "harness/cluster/wire/entrance.h"
#include "harness/cluster/wire/link.h"
#include "harness/cluster/wire/relay.h"
#include "harness/cluster/wire/stream.h"

namespace plugfest::cluster {

/// With an agent that may also carry the messages of others.
struct Connection {
  std::unique_ptr<Link> link = {};
  /// Where others connect to that agent; port 0: nowhere.
  std::string address = {};
  std::uint16_t port = 0;
  std::size_t redirected = 0;
};

struct AgentHere {
  std::string name = {};
  std::string instance = {};
  /// What carries its messages; nullptr: nothing at present.
  Connection* way = nullptr;
  /// Message::host on that connection.
  std::uint32_t number = 0;
  Stream stream = {};
  Nanoseconds heard_ns = 0;
  Nanoseconds silent_ns = 0;  ///< longer than usual; counted as a wait of its ranks
  /// When and why it has lost its way; 0: it has one.
  Nanoseconds gone_ns = 0;
  std::string gone = {};
  struct Rank {
    std::shared_ptr<RemoteRank> state;
    std::unique_ptr<Relay> relay;
  };
  /// By Message::rank.
  std::map<std::uint32_t, Rank> ranks = {};
};

/// Thread safety: none.
class Agents {
 public:
  /// Takes a message of an agent, other than those about its connection.
  using Process = std::function<void(AgentHere& agent, Message message)>;
  /// Is told which agent was removed, and why: "host h3 has not answered for 20 s".
  using Lost = std::function<void(AgentHere& agent, const std::string& reason)>;

  /// Listens. `options` and `shared` must outlive the object. Errors: std::runtime_error.
  Agents(const HubOptions& options, const Token& token, HubShared& shared, Process process, Lost lost);

  std::uint16_t port() const { return entrance_.port(); }
  /// nullptr if it has not joined or is lost.
  AgentHere* find(const std::string& host);
  /// By the names of hosts.
  std::map<std::string, AgentHere>& all() { return agents_; }
  HubCounters counters() const;

  /// Appends what to poll.
  void add_to(std::vector<pollfd>& polled) const;
  /// Reads, and accepts agents, as the descriptors from `next` on permit, which `add_to` appended, and moves `next`
  /// behind them.
  void serve(std::vector<pollfd>::const_iterator& next);
  /// Asks all agents every second whether they are there, and removes those that are lost.
  void watch();
  void flush();
  /// Ends all agents. Waits a second at most for what is not sent yet; agents also end when the connection closes.
  void finish();

 private:
  bool admit(std::unique_ptr<Link> link, const Hello& hello, std::vector<Message> rest);
  void redirect(Link& link, Connection& carrier, const std::string& name);
  bool may_join(const std::string& name) const;
  Connection& connect(std::unique_ptr<Link> link, const Hello& hello);
  void join(const Hello& hello, Connection& way, std::uint32_t number);
  void join_behind(Connection& connection, const Message& message, const std::string& name);
  void welcome(AgentHere& agent, Connection& way, std::uint64_t received);
  void process_from(const std::string& carrier, Connection& connection, Message message);
  void process(AgentHere& agent, Message message);
  void ask(const AgentHere& agent);
  std::string reason_of_loss(const AgentHere& agent) const;
  void close_connection_of(AgentHere& lost);

  const HubOptions& options_;
  HubShared& shared_;
  const Process process_;
  const Lost lost_;
  Entrance entrance_;
  /// By the names of hosts.
  std::map<std::string, Connection> connections_;
  std::map<std::string, AgentHere> agents_;
  /// Of the agents that were told to connect to another one, by Message::host.
  std::map<std::uint32_t, std::string> names_;
  std::uint32_t last_number_ = 0;
  Nanoseconds asked_ns_ = 0;
  /// Without the connections that are open.
  HubCounters counters_;
};

}  // namespace plugfest::cluster
