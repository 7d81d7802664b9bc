#include "fabric/loopback/layout.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <map>
#include <stdexcept>
#include <vector>

#include "fabric/loopback/interfaces.h"

namespace plugfest::loopback {
namespace {

using topology::Ipv4Address;

constexpr std::uint16_t kRocePort = 4791;
constexpr std::uint32_t kHostsPerSubnet = 254;
constexpr std::size_t kSubnets = 256;
constexpr int kPrefixLength = 24;

Descriptor make_socket() {
  Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) throw_errno("make a socket");
  return socket;
}

sockaddr_in address_of(std::uint32_t address) {
  sockaddr_in result = {};
  result.sin_family = AF_INET;
  result.sin_port = htons(kRocePort);
  result.sin_addr.s_addr = htonl(address);
  return result;
}

// Reserves 127.x.0.0/16 by binding 127.x.255.255, which no host gets. Returns an empty descriptor if x is in use.
Descriptor claim(std::uint32_t x) {
  Descriptor socket = make_socket();
  const sockaddr_in address = address_of(127u << 24 | x << 16 | 0xffff);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return socket;
  if (errno != EADDRINUSE) throw_errno("reserve addresses of the loopback interface");
  return Descriptor();
}

// The loopback interface can be down in a container. Without this check the plugin would fail with confusing errors.
void require_loopback_up() {
  const Descriptor socket = make_socket();
  const sockaddr_in address = address_of(INADDR_LOOPBACK);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return;
  if (errno != ENETUNREACH) throw_errno("use the loopback interface");
  throw std::runtime_error("--nic loopback: the loopback interface is down: run\n    sudo ip link set lo up");
}

}  // namespace

Layout::Layout(topology::Graph graph) : graph_(std::move(graph)) {
  require_loopback_up();
  std::uint32_t x = 1;
  while (x < 255 && (claim_ = claim(x)).get() < 0) ++x;
  if (claim_.get() < 0) throw std::runtime_error("--nic loopback: no free addresses in 127.0.0.0/8");

  for (const topology::Switch& node : graph_.switches) {
    if (node.kind == topology::SwitchKind::kRouter)
      throw std::runtime_error(
          fmt::format("--nic loopback: {} is a router, which this NIC kind does not support: use a topology of direct "
                      "links or bridges, such as triangle, mesh:4, star:4, rail:2,4",
                      node.name));
  }
  std::map<topology::Subnet, std::uint32_t> numbers;
  for (topology::Link& link : graph_.links) {
    const auto number = numbers.emplace(link.subnet, static_cast<std::uint32_t>(numbers.size())).first->second;
    const Ipv4Address network = {127u << 24 | x << 16 | number << 8};
    for (const topology::LinkEnd& end : link.ends) {
      if (end.node != topology::LinkEnd::Node::kHost) continue;
      topology::Interface& interface = graph_.hosts[end.index].interfaces[end.interface];
      const std::uint32_t host = interface.address.value - link.subnet.network.value;
      if (host > kHostsPerSubnet || numbers.size() > kSubnets)
        throw std::runtime_error(
            fmt::format("--nic loopback: topology {} is too large: the limit is {} subnets of {} hosts", graph_.name,
                        kSubnets, kHostsPerSubnet));
      interface.address = {network.value + host};
      interface.prefix_length = kPrefixLength;
    }
    link.subnet = {network, kPrefixLength};
  }
}

std::string Layout::interfaces_of(std::string_view host) const {
  std::vector<Interface> interfaces;
  for (const topology::Interface& interface : graph_.host(host).interfaces) {
    Interface& added = interfaces.emplace_back();
    added.name = interface.name;
    added.address.s_addr = htonl(interface.address.value);
    added.prefix_length = interface.prefix_length;
    added.mtu_bytes = interface.mtu_bytes;
  }
  return to_text(interfaces);
}

}  // namespace plugfest::loopback
