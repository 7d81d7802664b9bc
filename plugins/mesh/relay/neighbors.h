// Finds the relays on the links of this host.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "plugins/mesh/relay/tunnel.h"

namespace mesh {

/// Asks by UDP multicast which processes serve as relay, and answers the queries of others. Not thread-safe, except
/// for `ask` and `neighbors`.
class NeighborFinder {
 public:
  /// Opens the sockets. `addresses`, the addresses of this host's NICs, and `key` must outlive this object; only IPv4
  /// addresses find neighbors. `port`: the UDP port of queries. Errors: Failure.
  NeighborFinder(const std::vector<LocalAddress>& addresses, const Secret& key, std::uint16_t port);

  /// Asks on all links which processes serve as relay. Does not wait; `neighbors` returns the answers.
  void ask();
  /// The processes that answered in the last 30 s, grouped by host.
  std::vector<Neighbor> neighbors() const;

  /// The sockets that become readable when `serve` must be called.
  int query_fd() const { return queries_.fd(); }
  int answer_fd() const { return answers_.fd(); }
  /// Takes the answers of others, and answers their queries with the TCP port `tunnel_port` of this process.
  void serve(std::uint16_t tunnel_port);

 private:
  struct Known {
    Neighbor neighbor;
    std::int64_t answered_ms = 0;
  };

  void answer_queries(std::uint16_t tunnel_port);
  void take_answers();

  const std::vector<LocalAddress>& addresses_;
  const Secret& key_;
  const Nonce nonce_;  ///< nonce of all queries of this object
  const std::uint64_t host_;
  const std::uint16_t port_;
  Socket queries_;  ///< UDP, receives queries
  Socket answers_;  ///< UDP, sends queries and receives answers

  mutable std::mutex mutex_;  ///< protects `known_` and the settings of `answers_`
  std::map<std::pair<Address, std::uint16_t>, Known> known_;
};

}  // namespace mesh
