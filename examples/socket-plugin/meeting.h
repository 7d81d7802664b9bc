// How two sides find each other: a listener, and a connect that is tried until it stands. Neither waits for the other.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace example {

/// What a connect has to know; NCCL carries it to the other process, byte for byte. `socket`: kept there by a connect
/// that is not finished, plus one; 0 before.
struct Handle {
  sockaddr_in address;
  std::uint64_t key;
  std::int64_t socket;
};
static_assert(sizeof(Handle) <= 128);

class Listener {
 public:
  /// On `address` and a port of the kernel's choice. Errors: nothing.
  static Listener* open(in_addr address, Handle* handle);
  ~Listener();

  /// A socket that knew the key, or nothing yet. Strangers are let in, kept apart until they have said something, and
  /// shown out.
  std::optional<int> accept();

 private:
  struct Guest {
    int socket = -1;
    std::uint64_t said = 0;
    std::size_t bytes = 0;
  };

  Listener(int socket, std::uint64_t key) : socket_(socket), key_(key) {}

  int socket_;
  std::uint64_t key_;
  std::vector<Guest> guests_;
};

/// A step of a connect from `own` address. `*socket`: the connection once it stands, and the handle is done with; -1
/// for not yet. False when it has failed.
bool connect_step(in_addr own, Handle* handle, int* socket);

}  // namespace example
