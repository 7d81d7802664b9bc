// Proofs by HMAC-SHA256.
#include "plugins/mesh/handshake/secret.h"

#include <mbedtls/md.h>
#include <sys/random.h>

#include <algorithm>
#include <string_view>

#include "plugins/mesh/failure.h"

namespace mesh {
namespace {

using Bytes = std::span<const std::uint8_t>;

/// The MAC of two strings of bytes. The first has a fixed length for each use, so that no two inputs are ambiguous.
Proof mac(Bytes key, Bytes first, Bytes second) {
  std::array<std::uint8_t, 32> whole = {};
  mbedtls_md_context_t context;
  mbedtls_md_init(&context);
  const int failed = mbedtls_md_setup(&context, mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), 1) |
                     mbedtls_md_hmac_starts(&context, key.data(), key.size()) |
                     mbedtls_md_hmac_update(&context, first.data(), first.size()) |
                     mbedtls_md_hmac_update(&context, second.data(), second.size()) |
                     mbedtls_md_hmac_finish(&context, whole.data());
  mbedtls_md_free(&context);
  if (failed != 0) throw Failure(Result::kInternalError, "cannot compute HMAC-SHA256");
  Proof proof;
  std::copy_n(whole.begin(), proof.size(), proof.begin());
  return proof;
}

Bytes bytes_of(std::string_view text) { return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}; }

}  // namespace

Nonce make_nonce() {
  Nonce nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    throw system_failure("get random bytes");
  }
  return nonce;
}

// The input is shorter than a nonce, so it is never the input of a proof.
ListenerId Secret::listener_id() const { return mac(bytes, bytes_of("listener"), {}); }

Proof Secret::prove(const Nonce& nonce, Bytes content) const { return mac(bytes, nonce, content); }

bool equal(const Proof& one, const Proof& other) {
  std::uint8_t differences = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    differences = static_cast<std::uint8_t>(differences | (one[i] ^ other[i]));
  return differences == 0;
}

}  // namespace mesh
