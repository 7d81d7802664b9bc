// Holds the thread while a header is half received.
#include <sys/socket.h>

#include "conformance/mutants/tcp/whole_header.h"

// The linker replaces the calls of recv by calls of __wrap_recv (ld: --wrap).
extern "C" {
ssize_t __real_recv(int socket, void* bytes, std::size_t count, int flags);

ssize_t __wrap_recv(int socket, void* bytes, std::size_t count, int flags) {
  return plugfest::mutants::tcp::transfer_whole_header(
      socket, POLLIN, static_cast<std::byte*>(bytes), count,
      [&](std::byte* rest, std::size_t left) { return __real_recv(socket, rest, left, flags); });
}
}
