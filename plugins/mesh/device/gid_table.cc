#include "plugins/mesh/device/gid_table.h"

#include <net/if.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr std::uint32_t kMaxGids = 256;  // sgid_index has 8 bits

Address address_of(const ibv_gid_entry& entry) {
  Address address;
  std::memcpy(address.bytes.data(), entry.gid.raw, address.bytes.size());
  return address;
}

int prefix_length(const sockaddr* mask, const Address& address) {
  const std::optional<Address> bits = mask != nullptr ? from_sockaddr(mask) : std::nullopt;
  if (!bits) return address.is_ipv4() ? 32 : 128;
  int length = 0;
  for (std::size_t i = address.is_ipv4() ? 12 : 0; i < 16; ++i) length += std::popcount(bits->bytes[i]);
  return length;
}

// Prefix length of an address, preferably on the interface of the GID. nullopt: this host does not have the address.
std::optional<int> prefix_of(const ifaddrs* interfaces, const Address& address, unsigned interface_index) {
  std::optional<int> prefix;
  for (const ifaddrs* interface = interfaces; interface != nullptr; interface = interface->ifa_next) {
    if (from_sockaddr(interface->ifa_addr) != address) continue;
    const bool same_interface = if_nametoindex(interface->ifa_name) == interface_index;
    if (!prefix || same_interface) prefix = prefix_length(interface->ifa_netmask, address);
    if (same_interface) break;
  }
  return prefix;
}

}  // namespace

Interfaces list_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw system_failure("list the interfaces of this host");
  return Interfaces(list);
}

GidTable::GidTable(ibv_context* context, std::uint8_t port, std::string name, std::size_t places,
                   std::optional<int> only_index)
    : context_(context),
      port_(port),
      name_(std::move(name)),
      places_(places),
      only_index_(only_index),
      addresses_(read_addresses(list_interfaces())) {}

std::vector<DeviceAddress> GidTable::addresses() const {
  const std::lock_guard lock(mutex_);
  return addresses_;
}

bool GidTable::has_gid(int index, const Address& address) const {
  ibv_gid_entry entry = {};
  return ibv_query_gid_ex(context_, port_, static_cast<std::uint32_t>(index), &entry, 0) == 0 &&
         entry.gid_type == IBV_GID_TYPE_ROCE_V2 && address_of(entry) == address;
}

std::uint8_t GidTable::index_of(const Address& address) const {
  // An address that was removed and added again may have another index.
  for (const DeviceAddress& candidate : addresses())
    if (candidate.network.address == address && has_gid(candidate.gid_index, address)) return candidate.gid_index;
  for (const ibv_gid_entry& entry : read_gids())
    if (address_of(entry) == address) return static_cast<std::uint8_t>(entry.gid_index);
  throw Failure(Result::kSystemError, "the GID of " + to_string(address) + " is no longer in the table of " + name_ +
                                          ": its address was removed or its interface went down; restore it");
}

void GidTable::refresh(const Interfaces& interfaces) {
  const std::vector<DeviceAddress> now = read_addresses(interfaces);
  const std::lock_guard lock(mutex_);
  const auto log_missing = [&](const auto& before, const auto& after, const char* what) {
    for (const DeviceAddress& address : before) {
      if (std::find(after.begin(), after.end(), address) != after.end()) continue;
      MESH_INFO("%s: %s %s, GID index %d", name_.c_str(), what, to_string(address.network.address).c_str(),
                address.gid_index);
    }
  };
  log_missing(addresses_, now, "lost");
  log_missing(now, addresses_, "got");
  addresses_ = now;
}

// Reads all entries with one call, because each call takes a system call, and tables have 256 entries.
std::vector<ibv_gid_entry> GidTable::read_gids() const {
  std::vector<ibv_gid_entry> gids(places_);
  const ssize_t count = ibv_query_gid_table(context_, gids.data(), gids.size(), 0);
  if (count < 0) throw system_failure("read the GID table of " + name_, static_cast<int>(-count));
  gids.resize(static_cast<std::size_t>(count));
  std::erase_if(gids, [&](const ibv_gid_entry& gid) {
    return gid.port_num != port_ || gid.gid_index >= kMaxGids || gid.gid_type != IBV_GID_TYPE_ROCE_V2 ||
           (only_index_ && gid.gid_index != static_cast<std::uint32_t>(*only_index_));
  });
  return gids;
}

std::vector<DeviceAddress> GidTable::read_addresses(const Interfaces& interfaces) const {
  std::vector<DeviceAddress> addresses;
  for (const ibv_gid_entry& entry : read_gids()) {
    const Address address = address_of(entry);
    // All hosts have link-local addresses on the same subnet, so they select no path.
    if (address.is_link_local()) continue;
    // Tables may list an address twice: for two VLANs, or for programs that expect it at another index.
    if (std::any_of(addresses.begin(), addresses.end(),
                    [&](const DeviceAddress& known) { return known.network.address == address; }))
      continue;
    const std::optional<int> prefix = prefix_of(interfaces.get(), address, entry.ndev_ifindex);
    if (!prefix) continue;
    addresses.push_back({{address, *prefix}, static_cast<std::uint8_t>(entry.gid_index)});
  }
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const DeviceAddress& candidate) { return candidate.network.address.is_ipv4(); });
  return addresses;
}

}  // namespace mesh
