#include "device.h"

#include <ifaddrs.h>
#include <net/if.h>

namespace example {
namespace {

std::vector<Device> find_devices() {
  std::vector<Device> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* interface = all; interface != nullptr; interface = interface->ifa_next) {
    const bool usable = interface->ifa_addr != nullptr && interface->ifa_addr->sa_family == AF_INET &&
                        (interface->ifa_flags & IFF_UP) != 0 && (interface->ifa_flags & IFF_LOOPBACK) == 0;
    if (usable)
      found.push_back({interface->ifa_name, reinterpret_cast<const sockaddr_in*>(interface->ifa_addr)->sin_addr});
  }
  freeifaddrs(all);
  return found;
}

}  // namespace

const std::vector<Device>& devices() {
  static const std::vector<Device> found = find_devices();
  return found;
}

}  // namespace example
