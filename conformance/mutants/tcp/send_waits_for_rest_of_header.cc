// Holds the thread while a header is half sent.
#include <sys/socket.h>

#include "conformance/mutants/tcp/whole_header.h"

// The linker replaces the calls of send by calls of __wrap_send (ld: --wrap).
extern "C" {
ssize_t __real_send(int socket, const void* bytes, std::size_t count, int flags);

ssize_t __wrap_send(int socket, const void* bytes, std::size_t count, int flags) {
  return plugfest::mutants::tcp::transfer_whole_header(
      socket, POLLOUT, static_cast<const std::byte*>(bytes), count,
      [&](const std::byte* rest, std::size_t left) { return __real_send(socket, rest, left, flags); });
}
}
