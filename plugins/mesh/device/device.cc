// Finds the NICs: properties from verbs, addresses from the GID table, netmasks from getifaddrs.
#include "plugins/mesh/device/device.h"

#include <endian.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "plugins/mesh/failure.h"
#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr std::uint32_t kMaxGids = 256;  // sgid_index has 8 bits

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};
struct FreeDeviceList {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};

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
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if (from_sockaddr(each->ifa_addr) != address) continue;
    const bool same_interface = if_nametoindex(each->ifa_name) == interface_index;
    if (!prefix || same_interface) prefix = prefix_length(each->ifa_netmask, address);
    if (same_interface) break;
  }
  return prefix;
}

// As NCCL decides it: by the link `subsystem`.
std::string pci_path_of(const ibv_device* device) {
  char resolved[PATH_MAX], subsystem[PATH_MAX];
  if (realpath((std::string(device->ibdev_path) + "/device").c_str(), resolved) == nullptr) return {};
  if (realpath((std::string(resolved) + "/subsystem").c_str(), subsystem) == nullptr) return {};
  return std::string_view(subsystem).ends_with("/pci") ? resolved : "";
}

}  // namespace

int link_speed_mbps(int active_width, int active_speed) {
  const int lanes = [&] {
    switch (active_width) {
      case 1:
        return 1;
      case 2:
        return 4;
      case 4:
        return 8;
      case 8:
        return 12;
      case 16:
        return 2;
      default:
        return 0;
    }
  }();
  const int lane_mbps = [&] {
    switch (active_speed) {
      case 1:
        return 2500;
      case 2:
        return 5000;
      case 4:
      case 8:
        return 10000;
      case 16:
        return 14000;
      case 32:
        return 25000;
      case 64:
        return 50000;
      case 128:
        return 100000;
      default:
        return 0;
    }
  }();
  return lanes * lane_mbps;
}

Device::Device(ibv_device* device, std::uint8_t port) : port_(port) {
  context_ = ibv_open_device(device);
  if (context_ == nullptr) throw system_failure(std::string("open ") + ibv_get_device_name(device));
  protection_domain_ = ibv_alloc_pd(context_);
  if (protection_domain_ == nullptr) {
    const Failure failure =
        system_failure(std::string("allocate a protection domain of ") + ibv_get_device_name(device));
    ibv_close_device(context_);
    throw failure;
  }
  name_ = ibv_get_device_name(device);
  pci_path_ = pci_path_of(device);
}

Device::~Device() {
  ibv_dealloc_pd(protection_domain_);
  ibv_close_device(context_);
}

std::vector<DeviceAddress> Device::addresses() const {
  const std::lock_guard lock(mutex_);
  return addresses_;
}

bool Device::has_gid(int index, const Address& address) const {
  ibv_gid_entry entry = {};
  return ibv_query_gid_ex(context_, port_, static_cast<std::uint32_t>(index), &entry, 0) == 0 &&
         entry.gid_type == IBV_GID_TYPE_ROCE_V2 && address_of(entry) == address;
}

std::uint8_t Device::gid_index(const Address& address) const {
  // An address that was removed and added again may have another index.
  for (const DeviceAddress& each : addresses()) {
    if (each.network.address == address && has_gid(each.gid_index, address)) return each.gid_index;
  }
  for (const ibv_gid_entry& entry : read_gids()) {
    if (address_of(entry) == address) return static_cast<std::uint8_t>(entry.gid_index);
  }
  throw Failure(Result::kSystemError, "the GID of " + to_string(address) + " is no longer in the table of " + name_ +
                                          ": its address was removed or its interface went down; restore it");
}

void Device::refresh_addresses() const {
  const std::vector<DeviceAddress> now = read_addresses();
  const std::lock_guard lock(mutex_);
  const auto log_missing = [&](const auto& before, const auto& after, const char* what) {
    for (const DeviceAddress& each : before) {
      if (std::find(after.begin(), after.end(), each) != after.end()) continue;
      MESH_INFO("%s: %s %s, GID index %d", name_.c_str(), what, to_string(each.network.address).c_str(),
                each.gid_index);
    }
  };
  log_missing(addresses_, now, "lost");
  log_missing(now, addresses_, "got");
  addresses_ = now;
}

bool Device::takes_dma_buf() const {
  // Drivers refuse the invalid descriptor only if they can register valid ones.
  errno = 0;
  return ibv_reg_dmabuf_mr(protection_domain_, 0, 0, 0, -1, 0) == nullptr && errno == EBADF;
}

bool Device::port_is_active() const {
  ibv_port_attr port = {};
  return ibv_query_port(context_, port_, &port) == 0 && port.state == IBV_PORT_ACTIVE;
}

void Device::read_port() {
  ibv_device_attr device = {};
  if (const int error = ibv_query_device(context_, &device)) throw system_failure("query " + name_, error);
  if (device.phys_port_cnt > 1) name_ += ":" + std::to_string(port_);
  // A NIC without a GUID gets one from its name.
  guid_ = device.node_guid != 0 ? be64toh(device.node_guid) : std::hash<std::string>()(name_);

  ibv_port_attr port = {};
  if (const int error = ibv_query_port(context_, port_, &port))
    throw system_failure("query the port of " + name_, error);
  active_ = port.state == IBV_PORT_ACTIVE;
  mtu_ = port.active_mtu;
  max_message_bytes_ = port.max_msg_sz;
  speed_mbps_ = link_speed_mbps(port.active_width, port.active_speed);
  for (int each = 1; each <= device.phys_port_cnt; ++each) {
    if (ibv_query_port(context_, static_cast<std::uint8_t>(each), &port) == 0)
      most_gids_ += static_cast<std::size_t>(port.gid_tbl_len);
  }
}

// One call, since each takes a system call, and tables have 256 places.
std::vector<ibv_gid_entry> Device::read_gids() const {
  std::vector<ibv_gid_entry> gids(most_gids_);
  const ssize_t count = ibv_query_gid_table(context_, gids.data(), gids.size(), 0);
  if (count < 0) throw system_failure("read the GID table of " + name_, static_cast<int>(-count));
  gids.resize(static_cast<std::size_t>(count));
  std::erase_if(gids, [&](const ibv_gid_entry& gid) {
    return gid.port_num != port_ || gid.gid_index >= kMaxGids || gid.gid_type != IBV_GID_TYPE_ROCE_V2 ||
           (only_gid_ && gid.gid_index != static_cast<std::uint32_t>(*only_gid_));
  });
  return gids;
}

std::vector<DeviceAddress> Device::read_addresses() const {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw system_failure("list the interfaces of this host");
  const std::unique_ptr<ifaddrs, FreeInterfaces> interfaces(list);

  std::vector<DeviceAddress> addresses;
  for (const ibv_gid_entry& entry : read_gids()) {
    const Address address = address_of(entry);
    // All hosts have link-local addresses on the same subnet, so they select no path.
    if (address.is_link_local()) continue;
    const std::optional<int> prefix = prefix_of(interfaces.get(), address, entry.ndev_ifindex);
    if (!prefix) continue;
    addresses.push_back({{address, *prefix}, static_cast<std::uint8_t>(entry.gid_index)});
  }
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const DeviceAddress& each) { return each.network.address.is_ipv4(); });
  return addresses;
}

std::vector<SharedSubnet> shared_subnets(const DeviceList& devices) {
  std::map<std::string, SharedSubnet> subnets;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (const DeviceAddress& each : devices[i]->addresses()) {
      SharedSubnet& subnet = subnets[subnet_text(each.network)];
      if (!subnet.devices.empty() && subnet.devices.back() == i) continue;
      subnet.devices.push_back(i);
      subnet.mtu_differs |= devices[i]->mtu() != devices[subnet.devices.front()]->mtu();
    }
  }
  std::vector<SharedSubnet> shared;
  for (auto& [text, subnet] : subnets) {
    if (subnet.devices.size() < 2) continue;
    subnet.subnet = text;
    shared.push_back(std::move(subnet));
  }
  return shared;
}

namespace {

void log_subnets(const DeviceList& devices) {
  for (const SharedSubnet& each : shared_subnets(devices)) {
    std::string names;
    for (const std::size_t i : each.devices) {
      names += (names.empty() ? "" : ", ") + devices[i]->name() + " (path MTU " +
               std::to_string(mtu_bytes(devices[i]->mtu())) + ")";
    }
    MESH_INFO("on one subnet, %s: %s%s", each.subnet.c_str(), names.c_str(),
              each.mtu_differs ? "; their MTUs differ: give the interfaces one MTU" : "");
  }
}

}  // namespace

DeviceList find_devices(const Settings& settings) {
  int count = 0;
  const std::unique_ptr<ibv_device*, FreeDeviceList> list(ibv_get_device_list(&count));
  if (!list) {
    MESH_INFO("no RDMA devices: %s", error_text(errno).c_str());
    return {};
  }
  DeviceList devices;
  std::set<std::pair<std::uint64_t, int>> identities;
  for (int i = 0; i < count; ++i) {
    ibv_device* verbs = list.get()[i];
    if (!settings.admits(ibv_get_device_name(verbs))) {
      MESH_INFO("%s is not used: NCCL_MESH_HCA excludes it", ibv_get_device_name(verbs));
      continue;
    }
    int ports = 1;
    for (int port = 1; port <= ports; ++port) {
      try {
        auto device = std::make_shared<Device>(verbs, static_cast<std::uint8_t>(port));
        ibv_device_attr attributes = {};
        if (ibv_query_device(device->context(), &attributes) == 0) ports = attributes.phys_port_cnt;
        device->read_port();
        if (!device->active_) {
          MESH_INFO("%s is not used: its port is not active", device->name().c_str());
          continue;
        }
        device->only_gid_ = settings.gid_index;
        device->addresses_ = device->read_addresses();
        if (device->addresses().empty()) {
          MESH_INFO("%s is not used: it has no RoCE v2 GID for an address of this host", device->name().c_str());
          continue;
        }
        // Emulated NICs may have equal GUIDs, and NCCL would treat them as one NIC.
        if (!identities.insert({device->guid_, port}).second) device->guid_ = std::hash<std::string>()(device->name_);
        if (devices.size() == kMaxDevices) {
          MESH_INFO("%s is not used: NCCL supports at most %zu devices", device->name().c_str(), kMaxDevices);
          continue;
        }
        std::string addresses;
        for (const DeviceAddress& each : device->addresses()) {
          addresses += " " + to_string(each.network.address) + "/" + std::to_string(each.network.prefix);
        }
        MESH_INFO("device %zu: %s, %d Mbit/s, path MTU %d,%s", devices.size(), device->name().c_str(),
                  device->speed_mbps(), mtu_bytes(device->mtu()), addresses.c_str());
        device->index_ = static_cast<int>(devices.size());
        devices.push_back(std::move(device));
      } catch (const Failure& failure) {
        MESH_INFO("%s is not used: %s", ibv_get_device_name(verbs), failure.what());
      }
    }
  }
  log_subnets(devices);
  return devices;
}

}  // namespace mesh
