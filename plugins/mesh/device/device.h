// The NICs that the plugin offers: verbs ports with a RoCE v2 GID for an IP address of this host.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/mesh/device/address.h"
#include "plugins/mesh/settings.h"

namespace mesh {

/// An address of a NIC and its index in the port's GID table.
struct DeviceAddress {
  NetworkAddress network;
  std::uint8_t gid_index = 0;
};

/// An active verbs port with at least one address. It stays open as long as the object exists; connections share it.
/// Thread-safe: constant once `find_devices` has returned it.
class Device {
 public:
  /// Opens the device. Errors: Failure.
  Device(ibv_device* device, std::uint8_t port);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context* context() const { return context_; }
  ibv_pd* protection_domain() const { return protection_domain_; }
  std::uint8_t port() const { return port_; }

  const std::string& name() const { return name_; }          ///< the verbs name; "mlx5_0:2" with several ports
  const std::string& pci_path() const { return pci_path_; }  ///< resolved sysfs path; empty unless it is a PCI device
  std::uint64_t guid() const { return guid_; }
  int speed_mbps() const { return speed_mbps_; }
  ibv_mtu mtu() const { return mtu_; }
  std::uint32_t max_message_bytes() const { return max_message_bytes_; }

  const std::vector<DeviceAddress>& addresses() const { return addresses_; }
  /// The GID index of `address`. Errors: Failure if it is not an address of this device.
  std::uint8_t gid_index(const Address& address) const;

 private:
  friend std::vector<std::shared_ptr<const Device>> find_devices(const Settings& settings);
  void read_port();
  void read_addresses(const Settings& settings);

  ibv_context* context_ = nullptr;
  ibv_pd* protection_domain_ = nullptr;
  std::uint8_t port_;
  std::string name_;
  std::string pci_path_;
  std::uint64_t guid_ = 0;
  int speed_mbps_ = 0;
  ibv_mtu mtu_ = IBV_MTU_1024;
  std::uint32_t max_message_bytes_ = 0;
  bool active_ = false;
  int gid_count_ = 0;
  std::vector<DeviceAddress> addresses_;
};

using DeviceList = std::vector<std::shared_ptr<const Device>>;

/// All usable ports, in the order of verbs. Logs at level INFO why a port is not used. Empty if the host has no RDMA.
DeviceList find_devices(const Settings& settings);

/// Speed of a link in Mbit/s, from the width and speed codes of `ibv_port_attr`. Returns 0 for an unknown code.
int link_speed_mbps(int active_width, int active_speed);

}  // namespace mesh
