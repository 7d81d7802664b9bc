// Passes file descriptors to another process over a unix socket.
#pragma once

#include <vector>

#include "fabric/system/descriptor.h"

namespace plugfest::live {

/// Sends any number of descriptors. `socket`: connected, SOCK_SEQPACKET. Returns false if the receiver has closed the
/// socket or reads nothing within SO_SNDTIMEO.
bool send_descriptors(int socket, const std::vector<int>& fds);

/// Receives all descriptors of one call of send_descriptors(). Errors: std::runtime_error if the sender has closed the
/// socket or sends nothing within SO_RCVTIMEO, or if the descriptors exceed this process's limit.
std::vector<Descriptor> receive_descriptors(int socket);

}  // namespace plugfest::live
