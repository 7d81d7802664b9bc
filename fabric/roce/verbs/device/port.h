// What a NIC's single port and its tables say: the facts that verbs queries and the sysfs view both give.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "fabric/roce/verbs/device/interface.h"

namespace plugfest::roce {

inline constexpr std::uint8_t kPortNumber = 1;
inline constexpr std::uint16_t kDefaultPKey = 0xffff;
inline constexpr const char* kFirmwareVersion = "1.0.0";
inline constexpr const char* kBoardName = "plugfest-roce";

/// Largest message of an RC queue pair, in bytes.
inline constexpr std::uint32_t kMaxMessageBytes = 1u << 30;

/// The largest path MTU whose packets, with all their headers, fit an IP packet of `mtu_bytes`: 1500 gives 1024, 4200
/// and more 4096. Below 336 bytes nothing fits and IBV_MTU_256 is returned all the same.
ibv_mtu active_mtu(int mtu_bytes);

/// Lanes and lane speed whose product comes nearest to a link speed without passing it, as verbs numbers.
/// `gbps_text`: the product as sysfs writes it, such as "10".
struct LinkSpeed {
  std::uint8_t width = 0;       ///< 1 = 1X, 2 = 4X, 4 = 8X, 8 = 12X
  std::uint8_t speed = 0;       ///< 1 = SDR, 2 = DDR, 4 = QDR, 8 = FDR10, 32 = EDR, 64 = HDR, 128 = NDR
  const char* text = "";        ///< "10 Gb/sec (1X FDR10)"
  std::uint32_t rate_mbps = 0;  ///< 10000
};
LinkSpeed link_speed(int speed_mbps);

/// Port attributes at the moment the interface was read.
ibv_port_attr port_attributes(const Interface& interface);

/// EUI-64 of the Ethernet address, in network order: the NIC's node GUID and system image GUID. So each NIC is a system
/// image of its own, and programs that merge ports of one image (NCCL does) leave them apart.
__be64 guid_of(const Interface& interface);

}  // namespace plugfest::roce
