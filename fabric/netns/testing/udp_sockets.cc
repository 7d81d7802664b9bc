#include "fabric/netns/testing/udp_sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace plugfest::netns {
namespace {

constexpr std::uint16_t kPort = 4791;

sockaddr_in socket_address(topology::Ipv4Address address, std::uint16_t port) {
  sockaddr_in result = {};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  result.sin_addr.s_addr = htonl(address.value);
  return result;
}

}  // namespace

Descriptor udp_socket(Fabric& fabric, const std::string& host, topology::Ipv4Address address, std::uint16_t port) {
  Descriptor result;
  fabric.call(host, [&] {
    result = Descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const sockaddr_in own = socket_address(address, port);
    if (bind(result.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0) throw_errno("bind a socket");
    const timeval limit = {10, 0};  // a lost datagram fails the test and does not block it
    setsockopt(result.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  });
  return result;
}

ssize_t send_to(const Descriptor& socket, topology::Ipv4Address address, const std::string& text) {
  const sockaddr_in to = socket_address(address, kPort);
  return sendto(socket.get(), text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
}

std::string deliver(const Descriptor& sender, topology::Ipv4Address address, const Descriptor& receiver,
                    const std::string& text) {
  if (send_to(sender, address, text) < 0) return std::string("send: ") + std::strerror(errno);
  std::string buffer(65536, '\0');
  sockaddr_in from = {};
  socklen_t length = sizeof(from);
  const ssize_t got =
      recvfrom(receiver.get(), buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
  if (got < 0) return std::string("receive: ") + std::strerror(errno);
  buffer.resize(static_cast<std::size_t>(got));
  return topology::Ipv4Address{ntohl(from.sin_addr.s_addr)}.text() + " " + buffer;
}

}  // namespace plugfest::netns
