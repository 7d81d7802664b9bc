// IPv4 and IPv6 addresses in the form of a RoCE v2 GID, and their conversion for socket calls.
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <string>

namespace plugfest::roce {

/// An IPv6 address, or an IPv4 address as ::ffff:a.b.c.d. In network order.
struct Address {
  std::array<std::uint8_t, 16> bytes = {};

  Address() = default;
  explicit Address(const ibv_gid& gid) { std::memcpy(bytes.data(), gid.raw, bytes.size()); }
  Address(const in6_addr& ipv6) { std::memcpy(bytes.data(), &ipv6, bytes.size()); }
  Address(in_addr ipv4) {
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes.data() + 12, &ipv4, sizeof(ipv4));
  }

  bool is_ipv4() const {
    static constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(bytes.data(), kPrefix, sizeof(kPrefix)) == 0;
  }
  /// fe80::/10, valid on one link only.
  bool is_link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

  /// 224.0.0.0/4 or ff00::/8, a multicast group.
  bool is_multicast() const { return is_ipv4() ? (bytes[12] & 0xf0) == 0xe0 : bytes[0] == 0xff; }
  /// 127.0.0.0/8 or ::1.
  bool is_loopback() const { return is_ipv4() ? bytes[12] == 127 : *this == Address(in6addr_loopback); }

  /// The last four bytes: the IPv4 address, if it is one.
  in_addr ipv4() const {
    in_addr address = {};
    std::memcpy(&address, bytes.data() + 12, sizeof(address));
    return address;
  }
  ibv_gid gid() const {
    ibv_gid gid = {};
    std::memcpy(gid.raw, bytes.data(), bytes.size());
    return gid;
  }

  friend auto operator<=>(const Address&, const Address&) = default;
};

/// "192.168.100.1" or "fe80::1".
std::string text_of(const Address& address);

/// Address and port of a UDP socket; `port` in host order.
struct Endpoint {
  Address address;
  std::uint16_t port = 0;
};

/// An endpoint as a sockaddr.
class SocketAddress {
 public:
  SocketAddress() = default;
  /// `interface_index`: scope of a link-local address or of an IPv6 multicast group; ignored for others.
  SocketAddress(const Endpoint& endpoint, int interface_index);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  /// For the kernel to write to; endpoint() returns the result.
  sockaddr* to_fill() { return reinterpret_cast<sockaddr*>(&storage_); }
  socklen_t length() const { return storage_.sin6_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6); }
  static constexpr socklen_t kCapacity = sizeof(sockaddr_in6);
  Endpoint endpoint() const;

 private:
  sockaddr_in6 storage_ = {};  // begins with a sockaddr_in if IPv4
};

}  // namespace plugfest::roce
