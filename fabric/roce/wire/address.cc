#include "fabric/roce/wire/address.h"

#include <arpa/inet.h>

namespace plugfest::roce {

std::string text_of(const Address& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.is_ipv4())
    inet_ntop(AF_INET, address.bytes.data() + 12, text, sizeof(text));
  else
    inet_ntop(AF_INET6, address.bytes.data(), text, sizeof(text));
  return text;
}

SocketAddress::SocketAddress(const Endpoint& endpoint, int interface_index) {
  if (endpoint.address.is_ipv4()) {
    sockaddr_in ipv4 = {};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(endpoint.port);
    ipv4.sin_addr = endpoint.address.ipv4();
    std::memcpy(&storage_, &ipv4, sizeof(ipv4));
    return;
  }
  storage_.sin6_family = AF_INET6;
  storage_.sin6_port = htons(endpoint.port);
  std::memcpy(&storage_.sin6_addr, endpoint.address.bytes.data(), sizeof(storage_.sin6_addr));
  if (endpoint.address.is_link_local() || endpoint.address.is_multicast())
    storage_.sin6_scope_id = static_cast<std::uint32_t>(interface_index);
}

Endpoint SocketAddress::endpoint() const {
  if (storage_.sin6_family != AF_INET) return {storage_.sin6_addr, ntohs(storage_.sin6_port)};
  sockaddr_in ipv4 = {};
  std::memcpy(&ipv4, &storage_, sizeof(ipv4));
  return {ipv4.sin_addr, ntohs(ipv4.sin_port)};
}

}  // namespace plugfest::roce
