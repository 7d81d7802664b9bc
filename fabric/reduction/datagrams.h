// Sends many UDP packets with few system calls.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <span>

namespace plugfest::reduction {

struct Datagram {
  std::span<const std::byte> bytes;
  const sockaddr_in* to = nullptr;  ///< null: the peer of a connected socket
};

/// The most datagrams of one call of send_datagrams().
inline constexpr std::size_t kMaxDatagrams = 32;

/// Sends datagrams without waiting. Consecutive ones of one size to one receiver pass the kernel and the link as one
/// packet, which the kernel splits at the receiver (UDP GSO); the last of them may be smaller. Returns how many are
/// done: fewer than all if the socket takes no more now. A datagram that fails otherwise counts as sent and is lost.
/// Precondition: at most kMaxDatagrams. Thread safety: any thread, a socket in one thread at a time.
std::size_t send_datagrams(int socket, std::span<const Datagram> datagrams);

}  // namespace plugfest::reduction
