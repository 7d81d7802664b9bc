// The ports of the RDMA port spaces on the local addresses, which several processes share.
#pragma once

#include <cstdint>
#include <optional>

#include "fabric/rdma_cm/devices.h"
#include "fabric/system/file.h"

namespace plugfest::rdma_cm {

/// A port of a port space: RDMA_PS_TCP and so on, whose ports are independent of TCP and UDP ports.
struct Port {
  std::uint16_t space = 0;
  Endpoint endpoint;
};

/// A port that this process has bound. An abstract Unix socket with its name represents it: a second process cannot
/// bind the same name, and passes connections for the port to this socket.
class BoundPort {
 public:
  /// Binds `port`. Errors: std::system_error, with EADDRINUSE if a process has bound it.
  explicit BoundPort(const Port& port);

  const Port& port() const { return port_; }
  /// Readable when connections arrive.
  int socket() const { return socket_.get(); }
  /// Receives a connection and the bytes of its first message. nullopt if there is none.
  template <typename Bytes>
  std::optional<Descriptor> receive(Bytes& bytes) const {
    return receive(bytes.data(), bytes.size());
  }

 private:
  std::optional<Descriptor> receive(void* bytes, std::size_t size) const;

  Port port_;
  Descriptor socket_;
};

/// Passes a connection, whose first message has been read, to the process that has bound `port`. Returns false if there
/// is none, or if it does not receive.
bool pass_connection(const Port& port, int connection, const void* bytes, std::size_t size);

}  // namespace plugfest::rdma_cm
