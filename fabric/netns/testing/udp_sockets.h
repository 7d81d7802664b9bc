// For tests: UDP sockets inside hosts, and what arrives at them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "fabric/netns/fabric.h"
#include "fabric/system/descriptor.h"

namespace plugfest::netns {

/// A socket in a host, bound to `address` (0.0.0.0: any of the host's) and port 4791, or with `port` 0 to a free one.
Descriptor udp_socket(Fabric& fabric, const std::string& host, topology::Ipv4Address address = {},
                      std::uint16_t port = 4791);

/// Sends a datagram to port 4791 of `address`; the result and errno of sendto.
ssize_t send_to(const Descriptor& socket, topology::Ipv4Address address, const std::string& text);

/// Sends one and returns what `receiver` got: "192.168.100.1 text", with the sender's address. Says so if it could not
/// be sent or did not come within 10 seconds.
std::string deliver(const Descriptor& sender, topology::Ipv4Address address, const Descriptor& receiver,
                    const std::string& text);

}  // namespace plugfest::netns
