#include "plugins/mesh/device/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace mesh {
namespace {

constexpr std::array<std::uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// Prefix length within the 16 bytes.
int whole_prefix(const NetworkAddress& address) { return address.prefix + (address.address.is_ipv4() ? 96 : 0); }

Address network_of(const Address& address, int prefix) {
  Address network = address;
  for (int byte = 0; byte < 16; ++byte) {
    const int kept = std::clamp(prefix - 8 * byte, 0, 8);
    auto& value = network.bytes[static_cast<std::size_t>(byte)];
    value = static_cast<std::uint8_t>(value & (0xff00u >> kept));
  }
  return network;
}

}  // namespace

bool Address::is_ipv4() const { return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), bytes.begin()); }

bool Address::is_link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

Address from_ipv4(const std::uint8_t (&bytes)[4]) {
  Address address;
  std::copy(kIpv4Prefix.begin(), kIpv4Prefix.end(), address.bytes.begin());
  std::copy(bytes, bytes + 4, address.bytes.begin() + 12);
  return address;
}

std::optional<Address> from_sockaddr(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  if (address->sa_family == AF_INET) {
    std::uint8_t bytes[4];
    std::memcpy(bytes, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
    return from_ipv4(bytes);
  }
  if (address->sa_family == AF_INET6) {
    Address result;
    std::memcpy(result.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
    return result;
  }
  return std::nullopt;
}

Address parse_address(const std::string& text) {
  std::uint8_t ipv4[4];
  if (inet_pton(AF_INET, text.c_str(), ipv4) == 1) return from_ipv4(ipv4);
  Address address;
  if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) != 1)
    throw std::invalid_argument(text + " is not an IP address");
  return address;
}

std::string to_string(const Address& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.is_ipv4())
    inet_ntop(AF_INET, address.bytes.data() + 12, text, sizeof text);
  else
    inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  return text;
}

std::string subnet_text(const NetworkAddress& address) {
  return to_string(network_of(address.address, whole_prefix(address))) + "/" + std::to_string(address.prefix);
}

bool on_one_subnet(const NetworkAddress& network, const NetworkAddress& other) {
  if (network.address.is_ipv4() != other.address.is_ipv4()) return false;
  const int prefix = std::max(whole_prefix(network), whole_prefix(other));
  return network_of(network.address, prefix) == network_of(other.address, prefix);
}

SocketAddress::SocketAddress(const Address& address, std::uint16_t port) {
  if (address.is_ipv4()) {
    auto* in = reinterpret_cast<sockaddr_in*>(&storage);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    std::memcpy(&in->sin_addr, address.bytes.data() + 12, 4);
    size = sizeof *in;
  } else {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&storage);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    std::memcpy(&in6->sin6_addr, address.bytes.data(), 16);
    size = sizeof *in6;
  }
}

std::uint16_t SocketAddress::port() const {
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

}  // namespace mesh
