// Uses getifaddrs and interface ioctls: both work in the caller's network namespace and do not need /sys.
#include "fabric/roce/verbs/device/interface.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>

#include "fabric/loopback/interfaces.h"

namespace plugfest::roce {
namespace {

constexpr std::string_view kOutOfBandPrefix = "oob";
constexpr const char* kRestrictionVariable = "PLUGFEST_ROCE_INTERFACES";

// IFF_LOWER_UP, which <net/if.h> does not define. IFF_RUNNING changes up to a second later.
constexpr unsigned int kCarrier = 1u << 16;

class ControlSocket {
 public:
  ControlSocket() : descriptor_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "socket for interface queries");
  }
  ~ControlSocket() { close(descriptor_); }
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  bool ask(unsigned long request, ifreq& answer) const { return ioctl(descriptor_, request, &answer) == 0; }

 private:
  int descriptor_;
};

ifreq request_for(const std::string& name) {
  ifreq request = {};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

// Uses the legacy ETHTOOL_GSET, which veth supports and which needs no link mode masks.
int read_speed_mbps(const ControlSocket& socket, const std::string& name) {
  ethtool_cmd command = {};
  command.cmd = ETHTOOL_GSET;
  ifreq request = request_for(name);
  request.ifr_data = reinterpret_cast<char*>(&command);
  if (!socket.ask(SIOCETHTOOL, request)) return 0;
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

std::vector<Interface> list_nic_interfaces() {
  if (const auto configured = loopback::interfaces_of_this_process()) {
    std::vector<Interface> nics;
    for (const loopback::Interface& one : *configured)
      if (is_selected(one.name)) nics.push_back(loopback_interface(one));
    return nics;
  }
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) throw std::system_error(errno, std::generic_category(), "getifaddrs");
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

  const ControlSocket socket;
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
    if (!socket.ask(SIOCGIFMTU, request)) continue;  // removed after it was listed
    interface.mtu_bytes = request.ifr_mtu;
    interface.speed_mbps = read_speed_mbps(socket, name);
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

std::string device_name(const Interface& interface) { return "roce_" + interface.name; }

std::string node_name(const Interface& interface) { return "uverbs" + std::to_string(interface.index); }

}  // namespace plugfest::roce
