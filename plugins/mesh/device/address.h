// IP addresses of NICs. IPv4 and IPv6 have one form, the form of a RoCE v2 GID.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mesh {

/// An address as 16 bytes; IPv4 as ::ffff:a.b.c.d.
struct Address {
  std::array<std::uint8_t, 16> bytes = {};

  bool is_ipv4() const;
  bool is_link_local() const;  ///< IPv6 fe80::/10, which is unique only together with an interface
  auto operator<=>(const Address&) const = default;
};

Address from_ipv4(const std::uint8_t (&bytes)[4]);
/// The address in `address`; nullopt if it is null or neither IPv4 nor IPv6.
std::optional<Address> from_sockaddr(const sockaddr* address);
/// Parses "192.168.101.2" or "fd00::2". Errors: std::invalid_argument.
Address parse_address(const std::string& text);
std::string to_string(const Address& address);

/// An address and its prefix length, 0 to 32 (IPv4) or 0 to 128 (IPv6).
struct NetworkAddress {
  Address address;
  int prefix = 0;

  auto operator<=>(const NetworkAddress&) const = default;
};

/// The network of an address: "192.168.101.0/24".
std::string subnet_text(const NetworkAddress& address);

/// Whether each address is on the subnet of the other.
bool on_one_subnet(const NetworkAddress& network, const NetworkAddress& other);

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  SocketAddress() = default;
  SocketAddress(const Address& address, std::uint16_t port);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  std::uint16_t port() const;
};

}  // namespace mesh
