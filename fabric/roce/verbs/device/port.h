// Attributes of a NIC's port, for verbs queries and for the sysfs view.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <filesystem>

#include "fabric/roce/verbs/device/interface.h"

namespace plugfest::roce {

inline constexpr std::uint8_t kPortNumber = 1;
inline constexpr std::uint16_t kDefaultPKey = 0xffff;
inline constexpr const char* kFirmwareVersion = "1.0.0";
inline constexpr const char* kBoardName = "plugfest-roce";
inline constexpr std::uint32_t kVendorId = 0xffffff;  ///< no vendor's OUI; rxe has the same
inline constexpr std::uint32_t kPartId = 1;

/// Largest message of an RC queue pair, in bytes.
inline constexpr std::uint32_t kMaxMessageBytes = 1u << 30;

/// The largest path MTU whose packets with all headers fit into IP packets of `mtu_bytes`: 1024 for 1500, 4096 from
/// 4176. Returns IBV_MTU_256 also below 336 bytes, where packets of that MTU do not fit.
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

}  // namespace plugfest::roce
