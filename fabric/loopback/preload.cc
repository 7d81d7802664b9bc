// libplugfest-loopback.so, for LD_PRELOAD: getifaddrs() returns the interfaces of the process's loopback host instead
// of the machine's. Without the environment variable it changes nothing.
#include <dlfcn.h>
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>

#include <arpa/inet.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "fabric/loopback/interfaces.h"

namespace {

using plugfest::loopback::Interface;

constexpr unsigned int kUp = IFF_UP | IFF_RUNNING | IFF_BROADCAST | IFF_MULTICAST;

/// One entry of the list, with the storage that it points to.
struct Entry {
  ifaddrs entry;
  char name[IFNAMSIZ];
  sockaddr_storage address;
  sockaddr_in mask;
};

Entry* add(ifaddrs**& end, const Interface& interface) {
  auto* entry = static_cast<Entry*>(std::calloc(1, sizeof(Entry)));
  if (entry == nullptr) return nullptr;
  interface.name.copy(entry->name, IFNAMSIZ - 1);
  entry->entry.ifa_name = entry->name;
  entry->entry.ifa_flags = kUp;
  entry->entry.ifa_addr = reinterpret_cast<sockaddr*>(&entry->address);
  *end = &entry->entry;
  end = &entry->entry.ifa_next;
  return entry;
}

void release(ifaddrs* list) {
  while (list != nullptr) {
    ifaddrs* next = list->ifa_next;
    std::free(reinterpret_cast<Entry*>(list));  // ifaddrs is the first member
    list = next;
  }
}

int make_list(const std::vector<Interface>& interfaces, ifaddrs** list) {
  *list = nullptr;
  ifaddrs** end = list;
  for (const Interface& interface : interfaces) {
    Entry* link = add(end, interface);
    Entry* inet = link == nullptr ? nullptr : add(end, interface);
    if (inet == nullptr) {
      release(*list);
      return -1;
    }
    sockaddr_ll hardware = {};
    hardware.sll_family = AF_PACKET;
    hardware.sll_ifindex = interface.index;
    hardware.sll_hatype = ARPHRD_ETHER;
    hardware.sll_halen = 6;
    const auto mac = interface.mac();
    std::copy(mac.begin(), mac.end(), hardware.sll_addr);
    std::memcpy(&link->address, &hardware, sizeof(hardware));

    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr = interface.address;
    std::memcpy(&inet->address, &address, sizeof(address));
    inet->mask.sin_family = AF_INET;
    inet->mask.sin_addr.s_addr =
        interface.prefix_length <= 0 ? 0 : htonl(~std::uint32_t{0} << (32 - interface.prefix_length));
    inet->entry.ifa_netmask = reinterpret_cast<sockaddr*>(&inet->mask);
  }
  return 0;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int getifaddrs(ifaddrs** list) noexcept {
  if (const auto own = plugfest::loopback::interfaces_of_this_process()) return make_list(*own, list);
  return next<int (*)(ifaddrs**)>("getifaddrs")(list);
}

__attribute__((visibility("default"))) void freeifaddrs(ifaddrs* list) noexcept {
  if (std::getenv(plugfest::loopback::kVariable) != nullptr) return release(list);
  next<void (*)(ifaddrs*)>("freeifaddrs")(list);
}

}  // extern "C"
