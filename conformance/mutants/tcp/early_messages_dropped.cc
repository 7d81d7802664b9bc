// accept drops what the peer has sent before it.
#include <sys/socket.h>

#include <cstddef>

// The linker replaces the calls of recv by calls of __wrap_recv (ld: --wrap).
extern "C" {
ssize_t __real_recv(int socket, void* bytes, std::size_t count, int flags);

ssize_t __wrap_recv(int socket, void* bytes, std::size_t count, int flags) {
  const ssize_t received = __real_recv(socket, bytes, count, flags);
  const bool accepts = flags == 0;  // only accept receives like that: the key, with which a connection begins
  if (accepts && received == static_cast<ssize_t>(count)) {
    char early[4096];
    while (__real_recv(socket, early, sizeof early, MSG_DONTWAIT) > 0) {
    }
  }
  return received;
}
}
