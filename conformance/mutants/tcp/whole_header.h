// A transfer that holds the thread until a header is complete.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>

namespace plugfest::mutants::tcp {

/// Calls `transfer(bytes, count)`. When it has transferred a part of a header, waits until the socket is ready, and
/// repeats that for the rest. `ready`: POLLIN or POLLOUT. Returns the number of bytes as send and recv do.
template <typename Byte, typename Transfer>
ssize_t transfer_whole_header(int socket, short ready, Byte* bytes, std::size_t count, Transfer transfer) {
  constexpr std::size_t kHeaderBytes = 8;  // of the example; payloads of this size are transferred in the same way
  ssize_t transferred = transfer(bytes, count);
  while (count <= kHeaderBytes && transferred > 0 && static_cast<std::size_t>(transferred) < count) {
    pollfd waits_for = {socket, ready, 0};
    poll(&waits_for, 1, -1);
    const ssize_t more = transfer(bytes + transferred, count - static_cast<std::size_t>(transferred));
    if (more > 0) {
      transferred += more;
    } else if (more == 0 || (errno != EAGAIN && errno != EINTR)) {
      break;  // the connection is closed or broken, which the next call reports
    }
  }
  return transferred;
}

}  // namespace plugfest::mutants::tcp
