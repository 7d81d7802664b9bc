// Serves other hosts as relay, and looks for relays to a peer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "plugins/mesh/relay/neighbors.h"
#include "plugins/mesh/relay/tunnel_server.h"

namespace mesh {

/// A thread that answers queries of neighbors and copies the bytes of tunnels. It waits in poll() while it has
/// nothing to do. Thread-safe.
class Relay {
 public:
  struct Options {
    std::string secret;
    std::uint16_t port = 0;  ///< UDP, of the queries; the same on all hosts
    int wait_s = 0;          ///< seconds in which a search looks for relays
  };

  /// Opens the sockets and starts the thread. `addresses`: the addresses of this host's NICs. Errors: Failure.
  Relay(std::vector<LocalAddress> addresses, const Options& options);
  /// Ends all tunnels. Logs the counters at level INFO.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  NeighborFinder& finder() { return finder_; }
  const Secret& key() const { return key_; }
  std::int64_t wait_ms() const { return wait_ms_; }
  /// Whether no tunnel is open or being opened.
  bool is_idle() const { return server_.is_idle(); }

 private:
  void run();

  const std::vector<LocalAddress> addresses_;
  const Secret key_;
  const std::int64_t wait_ms_;
  NeighborFinder finder_;
  TunnelServer server_;  ///< only the thread uses it, except for is_idle()
  Socket wake_;          ///< ends the thread
  std::thread thread_;
};

/// Looks for a tunnel to a peer: through one relay, then through two, and so on, until the relay's `wait_ms` have
/// passed. Not thread-safe.
class RelaySearch {
 public:
  /// `addresses`, `port`: the addresses and the port of the listener.
  RelaySearch(std::shared_ptr<Relay> relay, std::vector<Address> addresses, std::uint16_t port);

  /// Makes the progress that is possible without waiting. Returns false when it is finished.
  bool step();
  /// The tunnel; closed if none was found.
  Socket take() { return std::move(socket_); }
  /// Number of relays that the tunnel may pass.
  int hops() const { return request_.hops; }

 private:
  std::shared_ptr<Relay> relay_;
  Request request_;
  std::optional<TunnelOpener> opener_;
  Socket socket_;
  std::int64_t since_ms_;
  std::int64_t asked_ms_ = 0;
  std::int64_t not_before_ms_ = 0;
};

}  // namespace mesh
