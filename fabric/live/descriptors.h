// File descriptors from one process to another, over a unix socket.
#pragma once

#include <vector>

#include "fabric/system/descriptor.h"

namespace plugfest::live {

/// Sends them, however many. `socket`: connected, SOCK_SEQPACKET. False if the receiver is gone, or reads nothing for
/// as long as the socket's SO_SNDTIMEO says.
bool send_descriptors(int socket, const std::vector<int>& fds);

/// Receives all that one call of send_descriptors() sends. Errors: std::runtime_error if the sender is gone or silent
/// for as long as SO_RCVTIMEO says, or if this process may not have so many open.
std::vector<Descriptor> receive_descriptors(int socket);

}  // namespace plugfest::live
