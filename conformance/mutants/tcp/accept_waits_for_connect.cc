// accept waits until a peer connects.
#include <poll.h>
#include <sys/socket.h>

// The linker replaces the calls of accept4 by calls of __wrap_accept4 (ld: --wrap).
extern "C" {
int __real_accept4(int socket, sockaddr* address, socklen_t* size, int flags);

int __wrap_accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  int found = 0;  // whether a peer has connected: a mark at the socket, without another effect on a listener
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
}
