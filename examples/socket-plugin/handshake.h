// Connects two processes over TCP: a listener, and a connect that is called until it has finished. Neither waits.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace example {

/// The information that connect needs. NCCL copies it to the other process and passes connect the same copy each time.
struct Handle {
  sockaddr_in address;  ///< where the listener listens
  std::uint64_t key;    ///< random; the connecting side sends it to prove that it has the handle
  std::int64_t socket;  ///< state of an unfinished connect: its socket plus 1; 0 before the first call
};
static_assert(sizeof(Handle) <= 128);

class Listener {
 public:
  /// Listens on `address` and any free port, and fills `handle`. Returns null on an error.
  static Listener* open(in_addr address, Handle* handle);
  ~Listener();

  /// Returns the socket of a peer that sent the key, or nullopt. Connections that send anything else are closed;
  /// silent ones are kept and ignored.
  std::optional<int> accept();

 private:
  /// An accepted connection that has not sent the whole key.
  struct Pending {
    int socket = -1;
    std::uint64_t key = 0;  ///< the bytes that have arrived
    std::size_t bytes = 0;  ///< received bytes of the key
  };

  Listener(int socket, std::uint64_t key) : socket_(socket), key_(key) {}

  int socket_;
  std::uint64_t key_;
  std::vector<Pending> pending_;
};

/// Starts or continues a connect from address `local`. Writes the connected socket to `*socket`, or -1 if the connect
/// has not finished. Returns false on an error.
bool connect_step(in_addr local, Handle* handle, int* socket);

}  // namespace example
