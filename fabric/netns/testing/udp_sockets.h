// UDP sockets in hosts, for tests.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "fabric/netns/fabric.h"
#include "fabric/system/file.h"

namespace plugfest::netns {

/// Opens a socket in a host, bound to `address` (0.0.0.0: all addresses of the host) and `port` (0: a free port).
Descriptor udp_socket(Fabric& fabric, const std::string& host, topology::Ipv4Address address = {},
                      std::uint16_t port = 4791);

/// Sends a datagram to port 4791 of `address`. Returns the result of sendto() and leaves its errno.
ssize_t send_to(const Descriptor& socket, topology::Ipv4Address address, const std::string& text);

/// Sends a datagram and returns the one that `receiver` gets, after the sender's address: "192.168.100.1 text". Returns
/// "send: REASON" or "receive: REASON" if sending fails or no datagram arrives within 10 seconds.
std::string deliver(const Descriptor& sender, topology::Ipv4Address address, const Descriptor& receiver,
                    const std::string& text);

}  // namespace plugfest::netns
