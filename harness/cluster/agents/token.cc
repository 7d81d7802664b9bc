#include "harness/cluster/agents/token.h"

#include <fmt/format.h>
#include <mbedtls/md.h>
#include <sys/random.h>

#include <charconv>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "fabric/system/file.h"

namespace plugfest::cluster {
namespace {

unsigned char* raw(Token& token) { return reinterpret_cast<unsigned char*>(token.data()); }
const unsigned char* raw(const Token& token) { return reinterpret_cast<const unsigned char*>(token.data()); }
const unsigned char* raw(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

Token make_token() {
  Token token;
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) throw_errno("get random bytes");
  return token;
}

Token token_of_order(const Token& token, std::uint32_t order) {
  const std::string text = fmt::format("order {}", order);
  Token derived;
  if (mbedtls_md_hmac(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), raw(token), token.size(), raw(text), text.size(),
                      raw(derived)) != 0)
    throw std::runtime_error("cannot compute HMAC-SHA256");
  return derived;
}

std::string to_hex(const Token& token) {
  return fmt::format("{:02x}", fmt::join(raw(token), raw(token) + token.size(), ""));
}

std::optional<Token> token_from_hex(std::string_view text) {
  Token token;
  if (text.size() != 2 * token.size()) return std::nullopt;
  for (std::size_t i = 0; i < token.size(); ++i)
    std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, raw(token)[i], 16);
  return to_hex(token) == text ? std::optional(token) : std::nullopt;
}

std::string Meeting::text() const { return fmt::format("{} {} {}", address, port, to_hex(token)); }

Meeting Meeting::parse(const std::string& text) {
  Meeting meeting;
  std::istringstream words(text);
  std::string token, rest;
  unsigned port = 0;
  words >> meeting.address >> port >> token;
  const std::optional<Token> parsed = token_from_hex(token);
  if (!parsed || port == 0 || port > 65535 || words >> rest)
    throw std::runtime_error("expected an address, a port and a token in one line");
  meeting.port = static_cast<std::uint16_t>(port);
  meeting.token = *parsed;
  return meeting;
}

std::string sha256_hex(std::string_view content) {
  Token digest;
  if (mbedtls_md(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), raw(content), content.size(), raw(digest)) != 0)
    throw std::runtime_error("cannot compute SHA-256");
  return to_hex(digest);
}

std::string sha256_of_file(const std::string& path) {
  const std::optional<std::string> content = try_read_file(path);
  return content ? sha256_hex(*content) : "";
}

}  // namespace plugfest::cluster
