// RDMA devices, their subnets, flow control and losses, read from the system. A port drops frames larger than its MTU,
// so the MTUs in one subnet must be equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"

namespace plugfest::doctor {

struct Gid {
  int index = 0;
  std::string text;       ///< "0000:0000:0000:0000:0000:ffff:0a00:0001"
  std::string type;       ///< "RoCE v2", "IB/RoCE v1"; empty on InfiniBand
  std::string interface;  ///< "eth2"; empty on InfiniBand

  /// "10.0.0.1" for an IPv4-mapped GID, else empty.
  std::string ipv4() const;
};

struct VerbsPort {
  int number = 1;
  std::string state;           ///< "ACTIVE"
  std::string physical_state;  ///< "LinkUp"
  std::string link_layer;      ///< "Ethernet" or "InfiniBand"
  std::string rate;            ///< "100 Gb/sec (4X EDR)"
  std::vector<Gid> gids;       ///< without unused entries
  /// The network interface of the port and its MTU; empty and 0 on InfiniBand.
  std::string interface;
  long mtu_bytes = 0;
  /// Values of hw_counters, by name.
  std::map<std::string, long> counters;

  bool is_ethernet() const { return link_layer == "Ethernet"; }
};

struct VerbsDevice {
  std::string name;
  std::string driver;    ///< "mlx5_core"; empty for software devices
  std::string firmware;  ///< "20.31.1014"
  std::string model;     ///< "MT4123"
  std::string node;      ///< its file in /dev/infiniband, "uverbs0"; empty if it has none
  std::vector<VerbsPort> ports;
};

/// "mlx5_0 port 1".
std::string port_name(const VerbsDevice& device, const VerbsPort& port);

/// All devices below /sys/class/infiniband.
std::vector<VerbsDevice> verbs_devices(const Machine& machine);

/// The largest payload of a RoCE packet on an interface: 256 to 4096 bytes. Subtracts 96 bytes for headers, as the
/// kernel does (iboe_get_mtu in include/rdma/ib_addr.h).
int roce_path_mtu(long interface_mtu_bytes);

/// A subnet to which an interface is connected without a router.
struct ConnectedSubnet {
  std::string interface;
  std::string subnet;  ///< "10.0.0.0/24", "fd00:1::/64"
};

/// IPv4 subnets from /proc/net/route, then IPv6 subnets from /proc/net/if_inet6 without link-local ones.
std::vector<ConnectedSubnet> connected_subnets(const Machine& machine);

/// A warning for each subnet whose ports have different MTUs.
std::vector<Finding> mtu_mismatches(const Machine& machine, const std::vector<VerbsDevice>& devices);

// Flow control and packet loss of a port's network. The driver's settings of priority flow control are read over
// netlink (IEEE 802.1Qaz, linux/dcbnl.h).

/// Settings of flow control and congestion marking, and counters of lost and late packets. Empty if the driver reports
/// neither.
std::vector<Finding> examine_losses(const Machine& machine, const VerbsDevice& device, const VerbsPort& port);

/// One bit for each of the eight priorities: set if the priority is paused instead of dropped. std::nullopt if the
/// driver does not report it. Needs no privilege.
std::optional<std::uint8_t> paused_priorities(const std::string& interface);

/// Parses the attributes of the kernel's answer. Accepts any bytes.
std::optional<std::uint8_t> paused_priorities(std::span<const std::byte> attributes);

}  // namespace plugfest::doctor
