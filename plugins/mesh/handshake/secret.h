// The secret of a listener, and proofs that a peer knows it.
//
// The secret travels only in the handle, which NCCL carries over its own bootstrap. A handshake message proves by a MAC
// (HMAC-SHA256 of Mbed TLS, truncated to 16 bytes) that its sender knows the secret. So a listener allocates nothing
// for a peer without the handle, and a connector does not accept the answer of another process at the same address.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace mesh {

/// Random bytes that are used once.
using Nonce = std::array<std::uint8_t, 16>;
/// The public name of a listener, derived from its secret.
using ListenerId = std::array<std::uint8_t, 16>;
using Proof = std::array<std::uint8_t, 16>;

/// Fresh random bytes. Errors: Failure.
Nonce make_nonce();

/// Known to a listener and to the holders of its handle.
struct Secret {
  std::array<std::uint8_t, 16> bytes = {};

  /// Errors: Failure.
  static Secret make() { return {make_nonce()}; }
  ListenerId listener_id() const;
  /// The proof for `content` in the exchange that the connector named `nonce`.
  Proof prove(const Nonce& nonce, std::span<const std::uint8_t> content) const;

  bool operator==(const Secret&) const = default;
};

/// Whether two proofs are equal. The time it takes does not depend on their content.
bool equal(const Proof& one, const Proof& other);

}  // namespace mesh
