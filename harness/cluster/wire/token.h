// The token of one certification, and what is computed from it: MACs by HMAC-SHA256 of Mbed TLS. Also SHA-256.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace plugfest::cluster {

using Bytes = std::span<const std::byte>;

/// 32 random bytes that the controller makes for one run. Who knows them may join the run as an agent, and start
/// programs in its agents.
using Token = std::array<std::byte, 32>;
/// Of HMAC-SHA256, and other random or derived values of that size.
using Digest = std::array<std::byte, 32>;

/// Random bytes. Errors: std::runtime_error.
Token make_token();
/// 64 hexadecimal digits.
std::string to_hex(Bytes bytes);
/// Parses 64 hexadecimal digits; nullopt for anything else.
std::optional<Token> token_from_hex(std::string_view text);

/// HMAC-SHA256 over the parts, one after the other. Each use has parts of fixed sizes, or one of variable size at the
/// end. Errors: std::runtime_error.
Digest mac(const Token& key, std::initializer_list<Bytes> parts);
/// Whether two strings of bytes of one size are equal, in a time that does not depend on their content.
bool equal(Bytes one, Bytes other);

/// SHA-256 in 64 hexadecimal digits. Errors: std::runtime_error.
std::string sha256_hex(std::string_view content);
/// The same of a file; "" if it cannot be read.
std::string sha256_of_file(const std::string& path);

inline Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

}  // namespace plugfest::cluster
