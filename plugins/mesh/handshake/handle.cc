#include "plugins/mesh/handshake/handle.h"

#include <mbedtls/md.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "plugins/mesh/handshake/message.h"
#include "plugins/mesh/log.h"

namespace mesh {

namespace {

using Bytes = std::span<const std::uint8_t>;

// The MAC of two strings of bytes. The first has a fixed length for each use, so that no two inputs are ambiguous.
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
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    throw system_failure("get random bytes");
  return nonce;
}

// The input is shorter than a nonce, so it is never the input of a proof.
ListenerId Secret::listener_id() const { return mac(bytes, bytes_of("listener"), {}); }

Proof Secret::prove(const Nonce& nonce, Bytes content) const { return mac(bytes, nonce, content); }

bool equal(const Proof& proof, const Proof& other) {
  std::uint8_t differences = 0;
  for (std::size_t i = 0; i < proof.size(); ++i)
    differences = static_cast<std::uint8_t>(differences | (proof[i] ^ other[i]));
  return differences == 0;
}

namespace {

constexpr std::uint32_t kMagic = 0x4853454d;  // "MESH"
constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kAttemptOffset = 32;
constexpr std::size_t kAddressOffset = 40;
constexpr std::size_t kAddressBytes = kHandleBytes - kAddressOffset;
constexpr std::size_t kIpv4Bytes = 5;
constexpr std::size_t kIpv6Bytes = 17;
static_assert(kAddressBytes / kIpv4Bytes <= 32, "one bit for each address");

Failure not_a_handle(const std::string& why) {
  return {Result::kInvalidArgument,
          "connect: this plugin did not make the handle (" + why + "): use the same plugin on all ranks"};
}

}  // namespace

void encode_handle(const Handle& handle, std::span<std::uint8_t, kHandleBytes> bytes) {
  std::vector<PeerAddress> order = handle.addresses;
  std::stable_sort(order.begin(), order.end(), [](const PeerAddress& first, const PeerAddress& second) {
    const auto rank = [](const PeerAddress& address) {
      return (address.network.address.is_ipv4() ? 0 : 2) + (address.of_listening_device ? 0 : 1);
    };
    return rank(first) < rank(second);
  });

  ByteWriter addresses;
  std::uint8_t ipv4 = 0, ipv6 = 0;
  std::uint32_t own = 0;
  for (const PeerAddress& address : order) {
    const bool is_ipv4 = address.network.address.is_ipv4();
    if (addresses.size() + (is_ipv4 ? kIpv4Bytes : kIpv6Bytes) > kAddressBytes) continue;
    if (is_ipv4 && ipv6 > 0) continue;  // all IPv4 addresses precede the IPv6 addresses
    if (address.of_listening_device) own |= 1u << (ipv4 + ipv6);
    const std::span<const std::uint8_t> whole = address.network.address.bytes;
    addresses.bytes(is_ipv4 ? whole.subspan(12) : whole);
    addresses.number(static_cast<std::uint8_t>(address.network.prefix));
    ++(is_ipv4 ? ipv4 : ipv6);
  }

  ByteWriter writer;
  writer.number(kMagic);
  writer.number(kVersion);
  writer.number(ipv4);
  writer.number(ipv6);
  writer.number(static_cast<std::uint8_t>(std::min<std::size_t>(handle.address_count, 255)));
  writer.number(handle.port);
  writer.number(std::uint16_t{0});
  writer.number(own);
  writer.bytes(handle.secret.bytes);
  writer.number(std::uint64_t{0});
  writer.bytes(addresses.take());
  const std::vector<std::uint8_t> written = writer.take();
  std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
  std::copy(written.begin(), written.end(), bytes.begin());
}

Handle decode_handle(std::span<const std::uint8_t, kHandleBytes> bytes) {
  ByteReader reader(bytes);
  if (reader.number<std::uint32_t>() != kMagic) throw not_a_handle("wrong magic");
  if (const auto version = reader.number<std::uint8_t>(); version != kVersion)
    throw not_a_handle("version " + std::to_string(version) + ", expected " + std::to_string(kVersion));
  const int ipv4 = reader.number<std::uint8_t>();
  const int ipv6 = reader.number<std::uint8_t>();
  Handle handle;
  handle.address_count = reader.number<std::uint8_t>();
  handle.port = reader.number<std::uint16_t>();
  reader.number<std::uint16_t>();
  const auto own = reader.number<std::uint32_t>();
  reader.bytes(handle.secret.bytes);
  reader.number<std::uint64_t>();
  if (handle.port == 0) throw not_a_handle("no port");
  if (ipv4 + ipv6 == 0) throw not_a_handle("no address");

  for (int i = 0; i < ipv4 + ipv6 && reader.ok(); ++i) {
    PeerAddress address;
    if (i < ipv4) {
      std::uint8_t raw[4];
      reader.bytes(raw);
      address.network.address = from_ipv4(raw);
    } else {
      reader.bytes(address.network.address.bytes);
    }
    address.network.prefix = reader.number<std::uint8_t>();
    if (address.network.prefix > (address.network.address.is_ipv4() ? 32 : 128))
      throw not_a_handle("invalid prefix length");
    address.of_listening_device = i < 32 && (own >> i & 1) != 0;
    handle.addresses.push_back(address);
  }
  if (!reader.ok() || handle.addresses.size() > handle.address_count) throw not_a_handle("too many addresses");
  return handle;
}

std::uint64_t read_attempt(std::span<const std::uint8_t, kHandleBytes> bytes) {
  return ByteReader(bytes.subspan(kAttemptOffset)).number<std::uint64_t>();
}

void write_attempt(std::span<std::uint8_t, kHandleBytes> bytes, std::uint64_t attempt) {
  for (std::size_t i = 0; i < sizeof attempt; ++i)
    bytes[kAttemptOffset + i] = static_cast<std::uint8_t>(attempt >> (8 * i));
}

}  // namespace mesh
