#include "fabric/roce/qp/connection.h"

#include <cerrno>
#include <mutex>

#include "fabric/system/file.h"

namespace plugfest::roce {
namespace {

constexpr std::uint8_t kUsualHopLimit = 64;  // if the program sets none

Destination checked(const ibv_ah_attr& attributes, const NicContext& nic) {
  if (nic.lock.in_child()) throw_errno("create an address handle after fork()", EIO);
  const std::lock_guard lock(nic.lock);
  const std::optional<Destination> destination = destination_of(attributes, nic.ports);
  if (!destination) throw_errno("create an address handle", EINVAL);
  return *destination;
}

}  // namespace

std::optional<Destination> destination_of(const ibv_ah_attr& attributes, const PortSet& ports) {
  if (attributes.is_global == 0 || attributes.port_num > 1) return std::nullopt;
  const std::optional<Address> local = ports.address(attributes.grh.sgid_index);
  const Address remote(attributes.grh.dgid);
  if (!local || local->is_ipv4() != remote.is_ipv4() || remote == Address()) return std::nullopt;
  Destination destination;
  destination.local = *local;
  destination.remote = remote;
  destination.traffic_class = attributes.grh.traffic_class;
  destination.hop_limit = attributes.grh.hop_limit == 0 ? kUsualHopLimit : attributes.grh.hop_limit;
  return destination;
}

Path path_to(const Destination& destination, PortSet& ports, std::uint32_t queue_pair_number) {
  UdpPort& port = ports.port(destination.local);
  Path path;
  path.socket = &port.send_socket(queue_pair_number);
  path.local = destination.local;
  path.remote = destination.remote;
  path.to = SocketAddress({destination.remote, kRoceUdpPort}, port.interface_index());
  path.traffic_class = destination.traffic_class;
  path.hop_limit = destination.hop_limit;
  return path;
}

AddressHandle::AddressHandle(const NicContext& nic, const ProtectionDomain& its_domain, const ibv_ah_attr& attributes)
    : ibv_ah{}, domain(its_domain), destination(checked(attributes, nic)) {}

}  // namespace plugfest::roce
