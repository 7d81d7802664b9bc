// The aggregation manager: groups, quotas, locks and who takes part. It has no socket and no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/reduction/messages.h"
#include "fabric/reduction/trees.h"

namespace plugfest::reduction {

/// What jobs may use of each tree.
struct Quota {
  std::size_t groups = 64;
  std::uint32_t osts = 64;  ///< outstanding operations (OSTs) of a group: its fragment window
};

using ConnectionId = std::uint64_t;

/// A message that the manager sends.
struct Outgoing {
  ConnectionId to = 0;
  nlohmann::json message;
  bool closes = false;  ///< the connection must be closed after the message
};

/// A connection that ends without `leave` fails its group. Accepts any bytes. Thread safety: none.
class Manager {
 public:
  explicit Manager(Trees trees, Quota quota = {});

  /// Handles a line that has arrived. `is_local`: whether the connection comes from the manager's own network
  /// namespace; only such connections can be nodes.
  std::vector<Outgoing> receive(ConnectionId from, std::string_view line, bool is_local);
  /// Handles the end of a connection, including one that is closed because of Outgoing::closes.
  std::vector<Outgoing> closed(ConnectionId connection);

  std::size_t groups() const { return groups_.size(); }

 private:
  struct Group {
    std::size_t tree = 0;
    bool is_streaming = false;
    std::vector<std::size_t> nodes;  ///< indices in Graph::switches
    std::size_t ranks = 0;
    ConnectionId creator = 0;
    std::size_t unconfigured = 0;                 ///< nodes that have not answered yet
    nlohmann::json created;                       ///< the answer to the creator; null after it was sent
    std::map<ConnectionId, std::size_t> members;  ///< ranks that have joined and not left
    std::vector<bool> joined;                     ///< for each rank, whether it has ever joined
  };
  using Groups = std::map<std::uint32_t, Group>;
  using Nodes = std::map<std::size_t, ConnectionId>;

  void handle(ConnectionId from, const nlohmann::json& message, bool is_local);
  void add_node(ConnectionId from, const nlohmann::json& message, bool is_local);
  void create(ConnectionId from, const nlohmann::json& message);
  void join(ConnectionId from, const nlohmann::json& message);
  void leave(ConnectionId from, bool unfinished);
  void configured(ConnectionId from, const nlohmann::json& message);
  void report(ConnectionId from, nlohmann::json message, bool is_local);
  void fail(Groups::iterator group, const std::string& reason);
  void remove(Groups::iterator group);
  Groups::iterator group_of(ConnectionId connection);
  Nodes::iterator node_of(ConnectionId connection);
  void send(ConnectionId to, nlohmann::json message, bool closes = false);
  [[noreturn]] static void throw_protocol_error(const std::string& reason);
  const std::string& name_of(std::size_t node) const { return trees_.graph().switches[node].name; }

  const Trees trees_;
  const Quota quota_;
  Nodes nodes_;  // connected nodes, by index in Graph::switches
  Groups groups_;
  std::uint32_t last_group_ = 0;
  std::vector<Outgoing> outgoing_;
};

}  // namespace plugfest::reduction
