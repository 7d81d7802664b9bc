// Network interfaces that carry a NIC: their state and the attributes of their ports.
#pragma once

#include <infiniband/verbs.h>

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fabric/roce/wire/address.h"
#include "fabric/system/file.h"

namespace plugfest::roce::verbs {

/// A snapshot of one Ethernet interface of the current network namespace.
struct Interface {
  std::string name;                      ///< eth0
  int index = 0;                         ///< kernel's interface index, > 0
  std::array<std::uint8_t, 6> mac = {};  ///< Ethernet address
  std::vector<Address> addresses;        ///< IPv4 first, then IPv6, in the kernel's order; never empty for a NIC
  int mtu_bytes = 0;                     ///< largest IP packet
  bool up = false;                       ///< administratively up, and with carrier
  int speed_mbps = 0;       ///< rate limit of the link, else its speed according to the driver; 0 if unknown
  std::uint64_t order = 0;  ///< larger than that of all snapshots of this process that began before
};

/// The order of a snapshot that begins now. Thread safety: any thread.
std::uint64_t next_snapshot();

/// Lists the interfaces that carry a NIC, sorted by index: Ethernet interfaces except loopback, with at least one
/// address that is not link-local, and a name that does not start with "oob". Environment:
/// PLUGFEST_ROCE_INTERFACES=eth0,eth1 restricts the list to these names; PLUGFEST_LOOPBACK_INTERFACES replaces the
/// kernel's interfaces (fabric/loopback). Errors: std::system_error if a query fails.
std::vector<Interface> list_nic_interfaces();

/// Reads the interface with this index; nullopt if it does not exist or does not carry a NIC.
std::optional<Interface> read_nic_interface(int index);

/// An rtnetlink socket that receives a notification of each change of a link or address. The kernel sends it before the
/// call that makes the change returns, except for the carrier of a link, which may follow up to a second later. Thread
/// safety: any thread.
class ChangeMonitor {
 public:
  /// Errors: std::system_error.
  ChangeMonitor();

  /// Whether a notification has arrived since the last call. Always true in a child after fork(), which must not take
  /// the notifications of its parent. Never waits.
  bool take_changes();
  /// Becomes readable when a notification arrives.
  int fd() const { return netlink_.get(); }

 private:
  Descriptor netlink_;
  pid_t owner_;
};

/// Name of the verbs device on an interface: roce_eth0.
std::string device_name(const Interface& interface);

/// Name of the device's node in /dev/infiniband, from the interface's index: uverbs2.
std::string node_name(const Interface& interface);

inline constexpr std::uint8_t kPortNumber = 1;
inline constexpr std::uint16_t kDefaultPKey = 0xffff;
inline constexpr const char* kFirmwareVersion = "1.0.0";
inline constexpr const char* kBoardName = "plugfest-roce";
inline constexpr std::uint32_t kVendorId = 0xffffff;  ///< no vendor's OUI; rxe has the same
inline constexpr std::uint32_t kPartId = 1;

/// Largest message of an RC queue pair, in bytes.
inline constexpr std::uint32_t kMaxMessageBytes = 1u << 30;

/// The largest path MTU whose packets with all headers fit into IP packets of `mtu_bytes`: 1024 for 1500, 4096 from
/// 4176. Returns IBV_MTU_256 even below 336 bytes, where packets of that MTU do not fit.
ibv_mtu active_mtu(int mtu_bytes);

/// The InfiniBand width and speed whose product is the largest that does not exceed a link speed.
struct LinkSpeed {
  std::uint8_t width = 0;       ///< 1 = 1X, 2 = 4X, 4 = 8X, 8 = 12X
  std::uint8_t speed = 0;       ///< 1 = SDR, 2 = DDR, 4 = QDR, 8 = FDR10, 32 = EDR, 64 = HDR, 128 = NDR
  const char* text = "";        ///< "10 Gb/sec (1X FDR10)"
  std::uint32_t rate_mbps = 0;  ///< 10000
};
LinkSpeed link_speed(int speed_mbps);

/// Port attributes for a snapshot of the interface.
ibv_port_attr port_attributes(const Interface& interface);

/// Node GUID and system image GUID of the NIC: the EUI-64 of the Ethernet address, in network byte order. Each NIC has
/// its own system image GUID, so that programs that merge ports of one system image (NCCL) do not merge NICs.
__be64 guid_of(const Interface& interface);

/// Writes `ports/1/state` and `phys_state` of a device in the sysfs view. Returns false, with errno set, on failure.
bool write_port_state(const std::filesystem::path& device_folder, bool up);

}  // namespace plugfest::roce::verbs
