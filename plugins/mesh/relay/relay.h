// Serves other hosts as relay, and finds the relays on the links of this host.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "plugins/mesh/relay/tunnel.h"

namespace mesh {

/// A thread that answers queries of neighbours and copies the bytes of tunnels. It waits in poll() while there is
/// nothing to do. It serves only peers that know the secret, and connects them only to addresses on the subnets of this
/// host's NICs, or to further relays. At most 256 tunnels, each with two buffers of 128 KiB. Thread-safe.
class Relay {
 public:
  struct Options {
    std::string secret;
    std::uint16_t port = 0;  ///< UDP, of the queries; the same on all hosts
    int wait_s = 0;          ///< seconds in which a search looks for relays
  };
  struct Counters {
    std::uint64_t tunnels = 0;  ///< opened
    std::uint64_t refused = 0;  ///< requests without a valid proof, without path, or beyond the maximum
    std::uint64_t bytes = 0;    ///< copied
  };

  /// Opens the sockets and starts the thread. `addresses`: of this host's NICs; only IPv4 ones find neighbours.
  /// Errors: Failure.
  Relay(std::vector<LocalAddress> addresses, const Options& options);
  /// Ends all tunnels.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// Asks on all links which processes serve as relay. Does not wait; `neighbours` returns the answers.
  void ask();
  /// The processes that answered in the last 30 s, those of one host next to each other.
  std::vector<Neighbour> neighbours() const;
  const Secret& key() const { return key_; }
  std::int64_t wait_ms() const { return wait_ms_; }
  Counters counters() const;
  /// Whether no tunnel is open or being opened.
  bool is_idle() const { return tunnel_count_ == 0; }

 private:
  struct Pipe {
    std::vector<std::uint8_t> buffer;
    std::size_t first = 0;
    std::size_t end = 0;
    bool at_end = false;    ///< nothing more will be read
    bool finished = false;  ///< the end was passed on
  };
  struct Tunnel {
    Socket in;
    Socket out;
    Address local;  ///< of this host, where `in` arrived
    Nonce nonce = {};
    MessageReader reader;
    std::optional<Request> request;
    std::vector<Path> paths;  ///< to the target
    std::size_t path = 0;
    std::optional<TunnelOpener> opener;
    bool open = false;
    Pipe there, back;
    std::int64_t since_ms = 0;
  };
  struct Known {
    Neighbour neighbour;
    std::int64_t answered_ms = 0;
  };

  void open_sockets(std::uint16_t port);
  void run();
  void answer_queries();
  void take_answers();
  void take_tunnels();
  bool advance(Tunnel& tunnel);
  bool take_request(Tunnel& tunnel);
  void connect_next(Tunnel& tunnel);
  bool reply(Tunnel& tunnel, TunnelStatus status);
  bool copy(const Socket& from, const Socket& to, Pipe& pipe);

  const std::vector<LocalAddress> addresses_;
  const Secret key_;
  const std::int64_t wait_ms_;
  const Nonce nonce_;  ///< of all queries of this object
  std::uint16_t query_port_ = 0;
  std::uint16_t tunnel_port_ = 0;
  std::uint64_t host_ = 0;
  Socket queries_;                             ///< UDP, receives queries
  Socket answers_;                             ///< UDP, sends queries and receives answers
  Socket tunnels_;                             ///< TCP
  Socket wake_;                                ///< ends the thread
  std::atomic<std::size_t> tunnel_count_ = 0;  ///< size of `open_`
  std::list<Tunnel> open_;                     ///< only the thread uses it

  mutable std::mutex mutex_;  ///< protects `known_` and `counters_`
  std::map<std::pair<Address, std::uint16_t>, Known> known_;
  Counters counters_;
  std::thread thread_;
};

/// Looks for a tunnel to a peer: through one relay, then through two, and so on, until the relay's `wait_ms` have
/// passed. Not thread-safe.
class RelaySearch {
 public:
  /// `addresses`, `port`: those of the listener.
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
