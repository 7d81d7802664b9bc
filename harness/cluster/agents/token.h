// The token of one certification, the address of its controller, and SHA-256.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plugfest::cluster {

/// 32 random bytes that the controller creates for one run. A program that has the token may join the run as an agent,
/// and start programs in its agents.
using Token = std::array<std::byte, 32>;

/// Errors: std::runtime_error.
Token make_token();
/// The token of a pair that agents measure, known only to these agents and the controller. Errors: std::runtime_error.
Token token_of_order(const Token& token, std::uint32_t order);
/// 64 hexadecimal digits.
std::string to_hex(const Token& token);
/// Parses what to_hex() returns; nullopt for anything else.
std::optional<Token> token_from_hex(std::string_view text);

/// The address and the token that an agent needs to join.
struct Meeting {
  /// IPv4 address in decimal digits, and port.
  std::string address;
  std::uint16_t port = 0;
  Token token{};

  /// One line without a newline: "10.0.0.1 41234 6b1f…".
  std::string text() const;
  /// Parses what text() returns. Errors: std::runtime_error.
  static Meeting parse(const std::string& text);
};

/// SHA-256 in 64 hexadecimal digits. Errors: std::runtime_error.
std::string sha256_hex(std::string_view content);
/// sha256_hex() of a file's content; "" if it cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace plugfest::cluster
