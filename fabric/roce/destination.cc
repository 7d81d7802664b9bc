// Checks address vectors and finds the sockets for them.
#include "fabric/roce/destination.h"

#include <arpa/inet.h>

#include <cerrno>
#include <system_error>

#include "fabric/roce/nic_engine.h"

namespace plugfest::roce {

namespace {

constexpr std::uint8_t kUsualHopLimit = 64;  // where the program gives none

Destination checked(const ibv_ah_attr& attributes) {
  const std::optional<Destination> destination = destination_of(attributes);
  if (!destination) throw std::system_error(EINVAL, std::generic_category(), "address handle");
  return *destination;
}

}  // namespace

std::optional<Destination> destination_of(const ibv_ah_attr& attributes) {
  const Address address(attributes.grh.dgid);
  if (attributes.is_global == 0 || attributes.port_num > 1 || !address.is_ipv4()) return std::nullopt;
  Destination destination;
  destination.address = address;
  destination.gid_index = attributes.grh.sgid_index;
  destination.traffic_class = attributes.grh.traffic_class;
  destination.hop_limit = attributes.grh.hop_limit == 0 ? kUsualHopLimit : attributes.grh.hop_limit;
  return destination;
}

std::optional<Path> path_to(const Destination& destination, NicEngine& nic, std::uint32_t queue_pair_number) {
  UdpPort* const port = nic.port(destination.gid_index);
  if (port == nullptr) return std::nullopt;
  Path path;
  path.socket = &port->send_socket(queue_pair_number);
  path.local = port->address();
  path.remote.sin_family = AF_INET;
  path.remote.sin_port = htons(kRoceUdpPort);
  path.remote.sin_addr = destination.address.ipv4();
  path.traffic_class = destination.traffic_class;
  path.hop_limit = destination.hop_limit;
  return path;
}

AddressHandle::AddressHandle(ProtectionDomain& its_domain, const ibv_ah_attr& attributes)
    : ibv_ah{}, domain(its_domain), destination(checked(attributes)) {}

}  // namespace plugfest::roce
