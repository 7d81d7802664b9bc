// Mutants of a plugin that transfers messages over TCP, unlike the base plugin of other mutants: examples/socket-plugin
// with another accept4, recv or send. The linker replaces calls of recv by calls of __wrap_recv (ld: --wrap). This
// source is compiled once for each, with the macro LIBRARY_<name>; faults/process.cc lists the rules that they break.
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>

#if defined LIBRARY_recv_waits_for_rest_of_header || defined LIBRARY_send_waits_for_rest_of_header
// Calls `transfer(bytes, count)`. When it has transferred part of a header, waits until the socket is ready, and
// repeats that for the rest. `ready`: POLLIN or POLLOUT. Returns the number of bytes as send and recv do.
template <typename Byte, typename Transfer>
static ssize_t transfer_whole_header(int socket, short ready, Byte* bytes, std::size_t count, Transfer transfer) {
  constexpr std::size_t kHeaderBytes = 8;  // header size of the example; payloads of this size are treated alike
  ssize_t transferred = transfer(bytes, count);
  while (count <= kHeaderBytes && transferred > 0 && static_cast<std::size_t>(transferred) < count) {
    pollfd waits_for = {socket, ready, 0};
    poll(&waits_for, 1, -1);
    const ssize_t more = transfer(bytes + transferred, count - static_cast<std::size_t>(transferred));
    if (more > 0)
      transferred += more;
    else if (more == 0 || (errno != EAGAIN && errno != EINTR))
      break;  // the connection is closed or broken: the next call reports it
  }
  return transferred;
}
#endif

extern "C" {
#if defined LIBRARY_accept_waits_for_connect
// accept waits until a peer connects.
int __real_accept4(int socket, sockaddr* address, socklen_t* size, int flags);

int __wrap_accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  int found = 0;  // whether a peer has connected; SO_PRIORITY has no effect on a listener and stores it
  socklen_t found_size = sizeof found;
  getsockopt(socket, SOL_SOCKET, SO_PRIORITY, &found, &found_size);
  if (found == 0) {
    pollfd waits_for = {socket, POLLIN, 0};
    poll(&waits_for, 1, -1);
    found = 1;
    setsockopt(socket, SOL_SOCKET, SO_PRIORITY, &found, sizeof found);
  }
  return __real_accept4(socket, address, size, flags);
}

#elif defined LIBRARY_early_messages_dropped
// accept discards data that the peer sent before accept.
ssize_t __real_recv(int socket, void* bytes, std::size_t count, int flags);

ssize_t __wrap_recv(int socket, void* bytes, std::size_t count, int flags) {
  const ssize_t received = __real_recv(socket, bytes, count, flags);
  const bool accepts = flags == 0;  // only accept receives with these flags: the key at the start of a connection
  if (accepts && received == static_cast<ssize_t>(count)) {
    char early[4096];
    while (__real_recv(socket, early, sizeof early, MSG_DONTWAIT) > 0) {
    }
  }
  return received;
}

#elif defined LIBRARY_recv_waits_for_rest_of_header
// Holds the thread while a header is partly received.
ssize_t __real_recv(int socket, void* bytes, std::size_t count, int flags);

ssize_t __wrap_recv(int socket, void* bytes, std::size_t count, int flags) {
  return transfer_whole_header(
      socket, POLLIN, static_cast<std::byte*>(bytes), count,
      [&](std::byte* rest, std::size_t left) { return __real_recv(socket, rest, left, flags); });
}

#elif defined LIBRARY_send_waits_for_rest_of_header
// Holds the thread while a header is partly sent.
ssize_t __real_send(int socket, const void* bytes, std::size_t count, int flags);

ssize_t __wrap_send(int socket, const void* bytes, std::size_t count, int flags) {
  return transfer_whole_header(
      socket, POLLOUT, static_cast<const std::byte*>(bytes), count,
      [&](const std::byte* rest, std::size_t left) { return __real_send(socket, rest, left, flags); });
}

#else
#error "no such mutant"
#endif
}
