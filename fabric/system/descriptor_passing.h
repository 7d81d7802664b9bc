// Passes descriptors to other processes over Unix sockets.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/system/file.h"

namespace plugfest {

/// Two connected stream sockets. Programs that are executed do not inherit them. Errors: std::runtime_error
/// "cannot ACTION: REASON".
std::pair<Descriptor, Descriptor> make_socket_pair(const std::string& action = "make a socket pair");

/// The most descriptors of one message. The kernel's limit is 253.
inline constexpr std::size_t kMaxPassed = 250;

/// Sends `parts` and passes copies of `fds` with the first byte. `flags`: the flags of sendmsg(). Returns the number of
/// sent bytes, or -1 with errno set, never EINTR. A closed connection is the error EPIPE and raises no signal. More
/// than kMaxPassed descriptors are the error EINVAL; none are allowed.
ssize_t send_with_descriptors(int socket, std::span<iovec> parts, std::span<const int> fds, int flags = 0);

/// Receives at most `size` bytes, and appends the descriptors that were passed with them to `passed`; if that is null,
/// the kernel closes them. Programs that are executed do not inherit them. The kernel also closes the descriptors that
/// exceed this process's limit. `flags`: the flags of recvmsg(). Returns the number of bytes, 0 at the end of the
/// connection, or -1 with errno set, never EINTR.
ssize_t receive_with_descriptors(int socket, void* bytes, std::size_t size, std::vector<Descriptor>* passed,
                                 int flags = 0);

}  // namespace plugfest
