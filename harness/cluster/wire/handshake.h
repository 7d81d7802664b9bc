// The handshake that opens a Link: each side proves that it knows the token, and both get the keys of the connection.
//
//   controller → agent   "pfcert03", nonce C (32 bytes)
//   agent → controller   "pfcert03", nonce A (32 bytes), HMAC(token, "agent", C, A)
//   controller → agent   HMAC(token, "controller", C, A)
//
// Each direction then has a key of its own, HMAC(token, "to agent" or "to controller", C, A).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "harness/cluster/wire/token.h"

namespace plugfest::cluster {

/// One side. Thread safety: none.
class Handshake {
 public:
  enum class Side : std::uint8_t { kController, kAgent };
  /// No side sends more bytes than this before the handshake is complete.
  static constexpr std::size_t kMostBytes = 8 + 2 * sizeof(Digest);

  Handshake(Side side, const Token& token) : side_(side), token_(token), own_nonce_(make_token()) {}

  /// What this side sends first; "" for the agent.
  std::string greeting() const;
  /// Takes the peer's next part from the begin of `inbox` if it is complete, and appends the answer to `outbox`.
  /// Returns whether it took one. What is wrong with the peer is in failure().
  bool take(std::string& inbox, std::string& outbox);
  const std::string& failure() const { return failure_; }

  /// Whether the peer has proved that it knows the token. The keys are then valid.
  bool complete() const { return complete_; }
  const Token& send_key() const { return send_key_; }
  const Token& receive_key() const { return receive_key_; }

 private:
  Digest prove(std::string_view who) const;
  bool refuse(const char* why);
  bool accept(std::string_view proof, std::string_view who);

  const Side side_;
  const Token token_;
  const Digest own_nonce_;
  Digest peer_nonce_{};
  bool answered_ = false;
  bool complete_ = false;
  Token send_key_{}, receive_key_{};
  std::string failure_;
};

}  // namespace plugfest::cluster
