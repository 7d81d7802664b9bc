// Copies the bytes of tunnels for other hosts.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "plugins/mesh/relay/neighbors.h"

namespace mesh {

/// Serves only peers that know the secret, and connects them only to addresses on the subnets of this host's NICs, or
/// to further relays. At most 256 tunnels, each with two buffers of 128 KiB. Beyond that, or when this process can open
/// no more files, a new connection takes the place of one that has sent no request for 1 s. Not thread-safe, except for
/// is_idle().
class TunnelServer {
 public:
  struct Counters {
    std::uint64_t tunnels = 0;  ///< number of opened tunnels
    std::uint64_t refused = 0;  ///< requests without a valid proof, without path, or beyond the maximum
    std::uint64_t bytes = 0;    ///< number of copied bytes
  };

  /// Opens the socket. All arguments must outlive this object. Errors: Failure.
  TunnelServer(const std::vector<LocalAddress>& addresses, const Secret& key, NeighborFinder& finder);

  std::uint16_t port() const { return port_; }
  /// Adds the sockets to wait for before the next `serve`. Returns whether `serve` must also be called soon without an
  /// event: while a tunnel is being opened, which has time limits, or a connection waits for a file descriptor.
  bool add_waits(std::vector<pollfd>& waits) const;
  /// Makes the progress that is possible without waiting.
  void serve();
  /// Whether no tunnel is open or being opened.
  bool is_idle() const { return open_count_ == 0; }
  const Counters& counters() const { return counters_; }

 private:
  struct Pipe {
    std::vector<std::uint8_t> buffer;
    std::size_t first = 0;
    std::size_t end = 0;
    bool at_end = false;    ///< nothing more will be read
    bool finished = false;  ///< the end was passed on to the other side
  };
  struct Tunnel {
    Socket in;
    Socket out;
    Address local;  ///< this host's address at which `in` arrived
    Nonce nonce = {};
    MessageReader reader;
    std::optional<Request> request;
    std::vector<Path> paths;  ///< paths to the target
    std::size_t path = 0;
    std::optional<TunnelOpener> opener;
    bool open = false;
    Pipe there, back;
    std::int64_t since_ms = 0;
  };

  void take_tunnels();
  bool drop_silent();
  bool advance(Tunnel& tunnel);
  bool take_request(Tunnel& tunnel);
  void connect_next(Tunnel& tunnel);
  bool reply(Tunnel& tunnel, TunnelStatus status);
  bool copy(const Socket& from, const Socket& to, Pipe& pipe);

  const std::vector<LocalAddress>& addresses_;
  const Secret& key_;
  NeighborFinder& finder_;
  const Socket socket_;
  const std::uint16_t port_;
  std::list<Tunnel> open_;
  std::atomic<std::size_t> open_count_ = 0;  ///< size of `open_`
  bool without_descriptors_ = false;         ///< a connection could not be accepted
  Counters counters_;
};

}  // namespace mesh
