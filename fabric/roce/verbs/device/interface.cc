// Uses getifaddrs and interface ioctls: both work in the caller's network namespace and do not need /sys.
#include "fabric/roce/verbs/device/interface.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include "fabric/loopback/interfaces.h"
#include "fabric/roce/verbs/device/gid_table.h"
#include "fabric/roce/verbs/device/rate_limit.h"

namespace plugfest::roce::verbs {
namespace {

constexpr std::string_view kOutOfBandPrefix = "oob";
constexpr const char* kRestrictionVariable = "PLUGFEST_ROCE_INTERFACES";

// IFF_LOWER_UP, which <net/if.h> does not define. IFF_RUNNING changes up to a second later.
constexpr unsigned int kCarrier = 1u << 16;

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

Descriptor control_socket() {
  Descriptor descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!descriptor) throw_errno("create a socket for interface queries");
  return descriptor;
}

ifreq request_for(const std::string& name) {
  ifreq request = {};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

// Uses the legacy ETHTOOL_GSET, which veth supports and which needs no link mode masks.
int read_speed_mbps(const Descriptor& control, const std::string& name) {
  ethtool_cmd command = {};
  command.cmd = ETHTOOL_GSET;
  ifreq request = request_for(name);
  request.ifr_data = reinterpret_cast<char*>(&command);
  if (ioctl(control.get(), SIOCETHTOOL, &request) != 0) return 0;
  const std::uint32_t speed = ethtool_cmd_speed(&command);
  return speed == static_cast<std::uint32_t>(SPEED_UNKNOWN) ? 0 : static_cast<int>(speed);
}

bool is_selected(const std::string& name) {
  if (std::string_view(name).starts_with(kOutOfBandPrefix)) return false;
  const char* restriction = std::getenv(kRestrictionVariable);
  if (restriction == nullptr || *restriction == '\0') return true;
  std::string_view rest = restriction;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    if (rest.substr(0, comma) == name) return true;
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return false;
}

// A host without a namespace (NIC kind `loopback`) has the interfaces of its configuration.
Interface loopback_interface(const loopback::Interface& configured) {
  Interface interface;
  interface.name = configured.name;
  interface.index = configured.index;
  interface.mac = configured.mac();
  interface.addresses = {configured.address};
  interface.mtu_bytes = configured.mtu_bytes;
  interface.up = true;
  return interface;
}

}  // namespace

std::uint64_t next_snapshot() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

std::vector<Interface> list_nic_interfaces() {
  const std::uint64_t order = next_snapshot();
  if (const auto configured = loopback::interfaces_of_this_process()) {
    std::vector<Interface> nics;
    for (const loopback::Interface& interface : *configured)
      if (is_selected(interface.name)) nics.push_back(loopback_interface(interface));
    for (Interface& nic : nics) nic.order = order;
    return nics;
  }
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) throw_errno("list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(head, &freeifaddrs);

  std::map<std::string, Interface> found;
  std::map<std::string, std::vector<Address>> ipv4;
  std::map<std::string, std::vector<Address>> ipv6;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    if (entry->ifa_addr->sa_family == AF_PACKET) {
      sockaddr_ll link = {};
      std::memcpy(&link, entry->ifa_addr, sizeof(link));
      if ((entry->ifa_flags & IFF_LOOPBACK) != 0 || link.sll_hatype != ARPHRD_ETHER || link.sll_halen != 6) continue;
      Interface interface;
      interface.name = entry->ifa_name;
      interface.index = link.sll_ifindex;
      std::copy_n(link.sll_addr, 6, interface.mac.begin());
      constexpr unsigned int kUsable = IFF_UP | kCarrier;
      interface.up = (entry->ifa_flags & kUsable) == kUsable;
      found.emplace(interface.name, std::move(interface));
    } else if (entry->ifa_addr->sa_family == AF_INET) {
      sockaddr_in address = {};
      std::memcpy(&address, entry->ifa_addr, sizeof(address));
      ipv4[entry->ifa_name].push_back(address.sin_addr);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 address = {};
      std::memcpy(&address, entry->ifa_addr, sizeof(address));
      ipv6[entry->ifa_name].push_back(address.sin6_addr);
    }
  }

  const Descriptor control = control_socket();
  const std::map<int, int> rate_limits = rate_limits_mbps();
  std::vector<Interface> nics;
  for (auto& [name, interface] : found) {
    if (!is_selected(name)) continue;
    // The label eth0:1 belongs to eth0.
    for (const auto& [label, list] : ipv4) {
      if (label.substr(0, label.find(':')) != name) continue;
      interface.addresses.insert(interface.addresses.end(), list.begin(), list.end());
    }
    interface.addresses.insert(interface.addresses.end(), ipv6[name].begin(), ipv6[name].end());
    if (std::all_of(interface.addresses.begin(), interface.addresses.end(), std::mem_fn(&Address::is_link_local)))
      continue;
    ifreq request = request_for(name);
    if (ioctl(control.get(), SIOCGIFMTU, &request) != 0) continue;  // removed after it was listed
    interface.mtu_bytes = request.ifr_mtu;
    const auto limit = rate_limits.find(interface.index);
    interface.speed_mbps = limit != rate_limits.end() ? limit->second : read_speed_mbps(control, name);
    interface.order = order;
    nics.push_back(std::move(interface));
  }
  std::sort(nics.begin(), nics.end(), [](const Interface& a, const Interface& b) { return a.index < b.index; });
  return nics;
}

std::optional<Interface> read_nic_interface(int index) {
  for (Interface& interface : list_nic_interfaces())
    if (interface.index == index) return std::move(interface);
  return std::nullopt;
}

ChangeMonitor::ChangeMonitor()
    : netlink_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)), owner_(getpid()) {
  if (!netlink_) throw_errno("create an rtnetlink socket");
  sockaddr_nl address = {};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (bind(netlink_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    throw_errno("join the rtnetlink groups");
}

bool ChangeMonitor::take_changes() {
  if (getpid() != owner_) return true;
  bool changed = false;
  char notification[8192];
  // ENOBUFS: notifications were lost.
  while (recv(netlink_.get(), notification, sizeof(notification), MSG_DONTWAIT) > 0 || errno == ENOBUFS) changed = true;
  return changed;
}

std::string device_name(const Interface& interface) { return "roce_" + interface.name; }

std::string node_name(const Interface& interface) { return "uverbs" + std::to_string(interface.index); }

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

}  // namespace plugfest::roce::verbs
