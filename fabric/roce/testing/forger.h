// For tests: forged packets.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabric/roce/testing/two_nics.h"
#include "fabric/roce/wire/icrc.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

/// A socket that sends RoCE packets with any content from any address.
class Forger {
 public:
  /// `foreign`: `source` is not an address of this host, which needs CAP_NET_ADMIN.
  explicit Forger(const std::string& source, bool foreign = false)
      : source_(address_of(source)), socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr = source_;
    socklen_t length = sizeof(name);
    const int on = 1;
    if (foreign && setsockopt(socket_, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof(on)) != 0)
      throw std::runtime_error("forged packets: no permission to use a foreign address");
    if (bind(socket_, reinterpret_cast<sockaddr*>(&name), length) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&name), &length) != 0)
      throw std::runtime_error("forged packets: cannot open a socket");
    port_ = ntohs(name.sin_port);
  }
  ~Forger() { close(socket_); }
  Forger(const Forger&) = delete;
  Forger& operator=(const Forger&) = delete;

  /// Sends a valid packet after `damage` has modified its bytes.
  void send(const std::string& to, const Headers& headers, std::size_t payload_bytes,
            const std::function<void(std::vector<std::byte>&)>& damage = nullptr) const {
    std::vector<std::byte> packet(kMaxHeaderBytes);
    packet.resize(encode(headers, packet.data()));
    const std::size_t header_bytes = packet.size();
    packet.resize(header_bytes + payload_bytes, std::byte{0x5a});
    const in_addr destination = address_of(to);
    const Flow flow = {Address(source_), Address(destination), port_, kRoceUdpPort};
    std::uint32_t icrc = start_icrc(flow, 0, packet.size() + kIcrcBytes, packet.data(), header_bytes);
    icrc = crc32(icrc, packet.data() + header_bytes, payload_bytes);
    for (std::size_t i = 0; i < kIcrcBytes; ++i) packet.push_back(static_cast<std::byte>(icrc >> (8 * i)));
    if (damage) damage(packet);
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(kRoceUdpPort);
    name.sin_addr = destination;
    if (sendto(socket_, packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&name), sizeof(name)) < 0)
      throw std::runtime_error("forged packets: cannot send");
  }

 private:
  in_addr source_;
  int socket_;
  std::uint16_t port_ = 0;
};

}  // namespace plugfest::roce
