#include "harness/cluster/wire/token.h"

#include <mbedtls/md.h>
#include <sys/random.h>

#include <fstream>
#include <iterator>
#include <stdexcept>

#include "fabric/system/file.h"

namespace plugfest::cluster {
namespace {

const unsigned char* raw(Bytes bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

int digit(char character) {
  if (character >= '0' && character <= '9') return character - '0';
  if (character >= 'a' && character <= 'f') return character - 'a' + 10;
  return -1;
}

}  // namespace

Token make_token() {
  Token token;
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) throw_errno("random bytes");
  return token;
}

std::string to_hex(Bytes bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15u];
  }
  return text;
}

std::optional<Token> token_from_hex(std::string_view text) {
  Token token;
  if (text.size() != 2 * token.size()) return std::nullopt;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    token[i] = static_cast<std::byte>(high << 4 | low);
  }
  return token;
}

Digest mac(const Token& key, std::initializer_list<Bytes> parts) {
  Digest digest;
  mbedtls_md_context_t context;
  mbedtls_md_init(&context);
  int failed = mbedtls_md_setup(&context, mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), 1);
  if (failed == 0) failed = mbedtls_md_hmac_starts(&context, raw(key), key.size());
  for (const Bytes part : parts) {
    if (failed == 0) failed = mbedtls_md_hmac_update(&context, raw(part), part.size());
  }
  if (failed == 0) failed = mbedtls_md_hmac_finish(&context, reinterpret_cast<unsigned char*>(digest.data()));
  mbedtls_md_free(&context);
  if (failed != 0) throw std::runtime_error("cannot compute HMAC-SHA256");
  return digest;
}

bool equal(Bytes one, Bytes other) {
  if (one.size() != other.size()) return false;
  std::byte differences{0};
  for (std::size_t i = 0; i < one.size(); ++i) differences |= one[i] ^ other[i];
  return differences == std::byte{0};
}

std::string sha256_hex(std::string_view content) {
  Digest digest;
  if (mbedtls_md(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), raw(bytes_of(content)), content.size(),
                 reinterpret_cast<unsigned char*>(digest.data())) != 0) {
    throw std::runtime_error("cannot compute SHA-256");
  }
  return to_hex(digest);
}

std::string sha256_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return file.bad() ? "" : sha256_hex(content);
}

}  // namespace plugfest::cluster
