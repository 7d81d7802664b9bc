#include "plugins/mesh/device/device.h"

#include <endian.h>
#include <limits.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

struct FreeDeviceList {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};

// Decides by the link `subsystem`, as NCCL does.
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

bool Device::takes_dma_buf() const {
  // Drivers refuse the invalid descriptor only if they can register valid ones.
  errno = 0;
  return ibv_reg_dmabuf_mr(protection_domain_, 0, 0, 0, -1, 0) == nullptr && errno == EBADF;
}

bool Device::port_is_active() const {
  ibv_port_attr port = {};
  return ibv_query_port(context_, port_, &port) == 0 && port.state == IBV_PORT_ACTIVE;
}

// Reads the GID table only if the port is active, and returns whether it is.
bool Device::read_port(std::optional<int> only_gid) {
  ibv_device_attr device = {};
  if (const int error = ibv_query_device(context_, &device)) throw system_failure("query " + name_, error);
  if (device.phys_port_cnt > 1) name_ += ":" + std::to_string(port_);
  // A NIC without a GUID gets one from its name.
  guid_ = device.node_guid != 0 ? be64toh(device.node_guid) : std::hash<std::string>()(name_);

  if (const int error = ibv_query_port(context_, port_, &attributes_))
    throw system_failure("query the port of " + name_, error);
  std::size_t gid_places = 0;
  for (int number = 1; number <= device.phys_port_cnt; ++number) {
    ibv_port_attr port = {};
    if (ibv_query_port(context_, static_cast<std::uint8_t>(number), &port) == 0)
      gid_places += static_cast<std::size_t>(port.gid_tbl_len);
  }
  if (attributes_.state != IBV_PORT_ACTIVE) return false;
  gids_ = std::make_unique<GidTable>(context_, port_, name_, gid_places, only_gid);
  return true;
}

std::vector<SharedSubnet> shared_subnets(const DeviceList& devices) {
  std::map<std::string, SharedSubnet> subnets;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (const DeviceAddress& address : devices[i]->gids().addresses()) {
      SharedSubnet& subnet = subnets[subnet_text(address.network)];
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
  for (const SharedSubnet& shared : shared_subnets(devices)) {
    std::string names;
    for (const std::size_t i : shared.devices) {
      names += (names.empty() ? "" : ", ") + devices[i]->name() + " (path MTU " +
               std::to_string(mtu_bytes(devices[i]->mtu())) + ")";
    }
    MESH_INFO("on one subnet, %s: %s%s", shared.subnet.c_str(), names.c_str(),
              shared.mtu_differs ? "; their MTUs differ: give the interfaces one MTU" : "");
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
        if (!device->read_port(settings.gid_index)) {
          MESH_INFO("%s is not used: its port is not active", device->name().c_str());
          continue;
        }
        if (device->gids().addresses().empty()) {
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
        for (const DeviceAddress& candidate : device->gids().addresses())
          addresses += " " + to_string(candidate.network.address) + "/" + std::to_string(candidate.network.prefix);
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
