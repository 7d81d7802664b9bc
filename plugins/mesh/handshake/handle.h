// The handle of a listener, the secret in it, and proofs that a peer knows the secret.
//
// The secret travels only in the handle, which NCCL carries over its own bootstrap. A handshake message proves by a MAC
// (HMAC-SHA256 of Mbed TLS, truncated to 16 bytes) that its sender knows the secret. So a listener allocates nothing
// for a peer without the handle, and a connector does not accept the answer of another process at the same address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plugins/mesh/device/path.h"

namespace mesh {

/// Random bytes that are used once.
using Nonce = std::array<std::uint8_t, 16>;
/// The public name of a listener, derived from its secret.
using ListenerId = std::array<std::uint8_t, 16>;
using Proof = std::array<std::uint8_t, 16>;

/// Fresh random bytes. Errors: Failure.
Nonce make_nonce();

/// A value that only a listener and the holders of its handle know.
struct Secret {
  std::array<std::uint8_t, 16> bytes = {};

  /// Errors: Failure.
  static Secret make() { return {make_nonce()}; }
  ListenerId listener_id() const;
  /// The proof for `content` in the exchange that the connector named `nonce`.
  Proof prove(const Nonce& nonce, std::span<const std::uint8_t> content) const;

  bool operator==(const Secret&) const = default;
};

/// Whether two proofs are equal. The time of the comparison does not depend on their content.
bool equal(const Proof& proof, const Proof& other);

inline constexpr std::size_t kHandleBytes = 128;

/// The handle that listen writes and connect reads.
///
/// Layout, little-endian, sizes in bytes: magic (4), version (1), number of IPv4 and of IPv6 addresses in the handle
/// (1, 1), number of addresses of the listener (1), TCP port (2), zero (2), bit mask of the addresses that belong to
/// the listening device (4), secret (16), attempt (8), addresses (88: IPv4 first, 5 each, then IPv6, 17 each; the last
/// byte of an address is its prefix length). It contains no pointer.
struct Handle {
  std::uint16_t port = 0;  ///< TCP, the same on every address
  Secret secret = {};
  std::vector<PeerAddress> addresses;  ///< the addresses that fit, IPv4 first
  std::size_t address_count = 0;       ///< number of addresses of the listener, including those that do not fit

  /// Whether the listener has more addresses than the handle. The listener sends them in answer to Ask.
  bool is_truncated() const { return address_count > addresses.size(); }
};

/// Writes all 128 bytes, with as many of `addresses` as fit, in this order: IPv4 of the listening device, other IPv4,
/// IPv6 of the listening device, other IPv6.
void encode_handle(const Handle& handle, std::span<std::uint8_t, kHandleBytes> bytes);

/// Errors: Failure (kInvalidArgument) if this is not a handle of this plugin.
Handle decode_handle(std::span<const std::uint8_t, kHandleBytes> bytes);

/// The number of the connection attempt that uses a handle; 0: none. NCCL passes the same buffer to each call of
/// connect until it succeeds, so the number identifies the state of the attempt. See `Attempts`.
std::uint64_t read_attempt(std::span<const std::uint8_t, kHandleBytes> bytes);
void write_attempt(std::span<std::uint8_t, kHandleBytes> bytes, std::uint64_t attempt);

}  // namespace mesh
