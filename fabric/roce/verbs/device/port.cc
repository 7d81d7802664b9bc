#include "fabric/roce/verbs/device/port.h"

#include <cstring>

#include "fabric/roce/verbs/device/gid_table.h"
#include "fabric/system/file.h"

namespace plugfest::roce {
namespace {

// Bytes reserved for headers: IPv6 40, UDP 8, BTH 12, RETH 16, ICRC 4. The kernel's rxe reserves the same, so both ends
// of a link choose the same path MTU.
constexpr int kHeaderReserve = 80;

constexpr LinkSpeed kLinkSpeeds[] = {
    {1, 1, "2.5 Gb/sec (1X SDR)", 2500},     {1, 8, "10 Gb/sec (1X FDR10)", 10000},
    {2, 2, "20 Gb/sec (4X DDR)", 20000},     {1, 32, "25 Gb/sec (1X EDR)", 25000},
    {2, 8, "40 Gb/sec (4X FDR10)", 40000},   {1, 64, "50 Gb/sec (1X HDR)", 50000},
    {2, 32, "100 Gb/sec (4X EDR)", 100000},  {2, 64, "200 Gb/sec (4X HDR)", 200000},
    {2, 128, "400 Gb/sec (4X NDR)", 400000},
};

// Used for interfaces that do not report a speed; the speed that veth reports.
constexpr int kAssumedSpeedMbps = 10000;

constexpr std::uint8_t kPhysicalStateDisabled = 3;
constexpr std::uint8_t kPhysicalStateLinkUp = 5;

}  // namespace

ibv_mtu active_mtu(int mtu_bytes) {
  const int payload = mtu_bytes - kHeaderReserve;
  if (payload >= 4096) return IBV_MTU_4096;
  if (payload >= 2048) return IBV_MTU_2048;
  if (payload >= 1024) return IBV_MTU_1024;
  if (payload >= 512) return IBV_MTU_512;
  return IBV_MTU_256;
}

LinkSpeed link_speed(int speed_mbps) {
  const auto wanted = static_cast<std::uint32_t>(speed_mbps > 0 ? speed_mbps : kAssumedSpeedMbps);
  LinkSpeed best = kLinkSpeeds[0];
  for (const LinkSpeed& candidate : kLinkSpeeds)
    if (candidate.rate_mbps <= wanted) best = candidate;
  return best;
}

ibv_port_attr port_attributes(const Interface& interface) {
  const LinkSpeed speed = link_speed(interface.speed_mbps);
  ibv_port_attr port = {};
  port.state = interface.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  port.max_mtu = IBV_MTU_4096;
  port.active_mtu = active_mtu(interface.mtu_bytes);
  port.gid_tbl_len = static_cast<int>(kGidTableSize);
  port.port_cap_flags = IBV_PORT_IP_BASED_GIDS;  // no IBV_PORT_CM_SUP: no connection manager
  port.max_msg_sz = kMaxMessageBytes;
  port.pkey_tbl_len = 1;
  port.max_vl_num = 1;
  port.active_width = speed.width;
  port.active_speed = speed.speed;
  port.phys_state = interface.up ? kPhysicalStateLinkUp : kPhysicalStateDisabled;
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  port.flags = IBV_QPF_GRH_REQUIRED;
  return port;
}

__be64 guid_of(const Interface& interface) {
  const auto& mac = interface.mac;
  const auto universal = static_cast<std::uint8_t>(mac[0] ^ 0x02);
  const std::uint8_t eui[8] = {universal, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  __be64 guid = 0;
  std::memcpy(&guid, eui, sizeof(guid));
  return guid;
}

bool write_port_state(const std::filesystem::path& device_folder, bool up) {
  const std::filesystem::path port = device_folder / "ports" / "1";
  return replace_file(port / "state", up ? "4: ACTIVE\n" : "1: DOWN\n") &&
         replace_file(port / "phys_state", up ? "5: LinkUp\n" : "3: Disabled\n");
}

}  // namespace plugfest::roce
