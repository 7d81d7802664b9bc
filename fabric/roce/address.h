// IP addresses of either family in one form, the one that a RoCE v2 GID has.
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace plugfest::roce {

/// An IPv6 address, or an IPv4 address as ::ffff:a.b.c.d. In network order.
struct Address {
  std::array<std::uint8_t, 16> bytes = {};

  Address() = default;
  explicit Address(const ibv_gid& gid) { std::memcpy(bytes.data(), gid.raw, bytes.size()); }
  explicit Address(const in6_addr& ipv6) { std::memcpy(bytes.data(), &ipv6, bytes.size()); }
  explicit Address(in_addr ipv4) {
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes.data() + 12, &ipv4, sizeof(ipv4));
  }

  bool is_ipv4() const {
    static constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(bytes.data(), kPrefix, sizeof(kPrefix)) == 0;
  }
  /// Only for an IPv4 address.
  in_addr ipv4() const {
    in_addr address = {};
    std::memcpy(&address, bytes.data() + 12, sizeof(address));
    return address;
  }

  friend bool operator==(const Address&, const Address&) = default;
};

}  // namespace plugfest::roce
