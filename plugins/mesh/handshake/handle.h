// The 128 bytes that a listener gives out and that connect gets: how to reach the listener, and a secret that proves
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plugins/mesh/device/path.h"

namespace mesh {

/// Names one listener; unguessable, so that only who has its handle can connect.
using Nonce = std::array<std::uint8_t, 16>;

/// Fresh random bytes. Errors: Failure.
Nonce make_nonce();

inline constexpr std::size_t kHandleBytes = 128;

/// What a handle says.
///
/// Layout, little-endian: magic (4), version (1), IPv4 and IPv6 addresses here (1, 1), addresses of the listener (1),
/// TCP port (2), zero (2), a bit per address: of the listening device (4), nonce (16), attempt (8), addresses (88
/// bytes: IPv4 first, 5 bytes each, then IPv6, 17 bytes each; the last byte is the prefix length). No pointer is in it.
struct Handle {
  std::uint16_t port = 0;  ///< TCP, the same at every address
  Nonce nonce = {};
  std::vector<PeerAddress> addresses;  ///< those that fit, IPv4 first
  std::size_t address_count = 0;       ///< of the listener; more than fit if it is greater than addresses.size()

  /// Whether the listener has addresses that are not here; it tells them when asked.
  bool cut_short() const { return address_count > addresses.size(); }
};

/// Writes all 128 bytes. Of `addresses`, as many as fit, in the order: IPv4 of the listening device, other IPv4, IPv6
/// likewise.
void encode_handle(const Handle& handle, std::span<std::uint8_t, kHandleBytes> bytes);

/// Errors: Failure (kInvalidArgument) if this is not a handle of this plugin.
Handle decode_handle(std::span<const std::uint8_t, kHandleBytes> bytes);

/// The number of the connection attempt that a handle is used for; 0: none. NCCL gives connect the same buffer until it
/// has succeeded, so this finds the state of the attempt again. Only a number, never followed as an address.
std::uint64_t read_attempt(std::span<const std::uint8_t, kHandleBytes> bytes);
void write_attempt(std::span<std::uint8_t, kHandleBytes> bytes, std::uint64_t attempt);

}  // namespace mesh
