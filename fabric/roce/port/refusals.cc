#include "fabric/roce/port/refusals.h"

#include <linux/errqueue.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <sys/socket.h>

#include <cstring>
#include <span>

#include "fabric/roce/port/udp_port.h"

namespace plugfest::roce {
namespace {

bool is_port_unreachable(const sock_extended_err& error) {
  if (error.ee_origin == SO_EE_ORIGIN_ICMP)
    return error.ee_type == ICMP_DEST_UNREACH && error.ee_code == ICMP_PORT_UNREACH;
  return error.ee_origin == SO_EE_ORIGIN_ICMP6 && error.ee_type == ICMP6_DST_UNREACH &&
         error.ee_code == ICMP6_DST_UNREACH_NOPORT;
}

Psn psn_of(std::span<const std::byte, kBthBytes> bth) {
  constexpr std::size_t kOffset = 9;  // 3 bytes in network order
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 3; ++i) number = number << 8 | static_cast<std::uint32_t>(bth[kOffset + i]);
  return Psn(number);
}

}  // namespace

void Refusals::enable(int descriptor, const Address& local) {
  const int on = 1;
  if (local.is_ipv4())
    setsockopt(descriptor, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
  else
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof(on));
}

void Refusals::read(int descriptor) {
  while (true) {
    std::array<std::byte, kBthBytes> bth;
    iovec part = {bth.data(), bth.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(sock_extended_err) + sizeof(sockaddr_in6))];
    SocketAddress to;
    msghdr message = {};
    message.msg_name = to.to_fill();
    message.msg_namelen = SocketAddress::kCapacity;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t length = receive_message(descriptor, message, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (length < 0) return;
    sock_extended_err error = {};
    for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr; part_of = CMSG_NXTHDR(&message, part_of)) {
      const bool ipv4 = part_of->cmsg_level == IPPROTO_IP && part_of->cmsg_type == IP_RECVERR;
      const bool ipv6 = part_of->cmsg_level == IPPROTO_IPV6 && part_of->cmsg_type == IPV6_RECVERR;
      if (ipv4 || ipv6) std::memcpy(&error, CMSG_DATA(part_of), sizeof(error));
    }
    if (!is_port_unreachable(error) || static_cast<std::size_t>(length) < bth.size()) continue;
    latest_[next_++ % latest_.size()] = {to.endpoint().address, destination_of(bth.data()), psn_of(bth)};
  }
}

}  // namespace plugfest::roce
