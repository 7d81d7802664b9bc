// The NICs that the plugin offers: verbs ports with a RoCE v2 GID for an IP address of this host.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/mesh/device/gid_table.h"
#include "plugins/mesh/device/region_cache.h"
#include "plugins/mesh/settings.h"

namespace mesh {

/// Speed of a link in Mbit/s, from the width and speed codes of `ibv_port_attr`. Returns 0 for an unknown code.
int link_speed_mbps(int active_width, int active_speed);

/// An active verbs port with at least one address. It stays open as long as the object exists; connections share it.
/// Thread-safe once `find_devices` has returned it: only its addresses and regions change, and mutexes protect them.
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
  int index() const { return index_; }  ///< in the list of `find_devices`

  const std::string& name() const { return name_; }          ///< the verbs name; "mlx5_0:2" with several ports
  const std::string& pci_path() const { return pci_path_; }  ///< resolved sysfs path; empty unless it is a PCI device
  std::uint64_t guid() const { return guid_; }
  int speed_mbps() const { return link_speed_mbps(attributes_.active_width, attributes_.active_speed); }
  ibv_mtu mtu() const { return attributes_.active_mtu; }
  std::uint32_t max_message_bytes() const { return attributes_.max_msg_sz; }

  /// The memory that is registered with the NIC.
  RegionCache& regions() const { return regions_; }
  /// The addresses.
  GidTable& gids() const { return *gids_; }
  /// Whether the NIC's driver registers DMA-BUFs.
  bool takes_dma_buf() const;
  /// Whether the port is active now. Takes a system call on most NICs.
  bool port_is_active() const;

 private:
  friend std::vector<std::shared_ptr<const Device>> find_devices(const Settings& settings);
  bool read_port(std::optional<int> only_gid);

  ibv_context* context_ = nullptr;
  ibv_pd* protection_domain_ = nullptr;
  std::uint8_t port_;
  int index_ = 0;
  std::string name_;
  std::string pci_path_;
  std::uint64_t guid_ = 0;
  ibv_port_attr attributes_ = {};  ///< when `find_devices` read them
  mutable RegionCache regions_;
  std::unique_ptr<GidTable> gids_;
};

using DeviceList = std::vector<std::shared_ptr<const Device>>;

/// Maximum number of devices: NCCL_MAX_NETDEVS, which NCCL does not check.
inline constexpr std::size_t kMaxDevices = 128;

/// All usable ports, in the order of verbs. Logs at level INFO each port, why a port is not used, and which ports share
/// a subnet. Empty if the host has no RDMA.
DeviceList find_devices(const Settings& settings);

/// A subnet on which NICs of this host have addresses.
struct SharedSubnet {
  std::string subnet;                ///< "192.168.100.0/24"
  std::vector<std::size_t> devices;  ///< indexes in the list, ascending
  bool mtu_differs = false;          ///< the NICs have different path MTUs
};

/// The subnets on which two or more NICs of the list have addresses.
std::vector<SharedSubnet> shared_subnets(const DeviceList& devices);

/// Bytes of an `ibv_mtu`: 256 to 4096.
constexpr int mtu_bytes(int mtu) { return 128 << mtu; }

}  // namespace mesh
