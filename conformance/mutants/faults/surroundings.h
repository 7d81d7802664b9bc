// What a plugin can observe of its host: ports without a carrier, MTUs, counters of NICs; and pauses.
#pragma once

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace plugfest::mutants {

inline void pause_briefly() {
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
}

/// Whether an Ethernet interface of this host has no carrier. `operstate` may change a second later than `carrier`.
inline bool a_port_is_down() {
  std::error_code error;
  for (const auto& interface : std::filesystem::directory_iterator("/sys/class/net", error)) {
    if (!interface.path().filename().string().starts_with("eth")) continue;
    const std::string file = interface.path() / "carrier";
    const int carrier = static_cast<int>(TEMP_FAILURE_RETRY(open(file.c_str(), O_RDONLY | O_CLOEXEC)));
    if (carrier < 0) continue;
    char value = 0;
    const ssize_t count = TEMP_FAILURE_RETRY(read(carrier, &value, 1));
    const bool down = count == 1 ? value == '0' : count < 0 && errno == EINVAL;  // EINVAL: the interface is down
    close(carrier);
    if (down) return true;
  }
  return false;
}

/// Sum of a counter, which hardware NICs have too, over the NICs of this host.
inline std::uint64_t nic_counter(const char* name) {
  std::uint64_t sum = 0;
  std::error_code error;
  for (const auto& nic : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    std::uint64_t value = 0;
    std::ifstream(nic.path() / "ports/1/hw_counters" / name) >> value;
    sum += value;
  }
  return sum;
}

/// The smallest MTU of an interface other than lo, in bytes.
inline int smallest_mtu() {
  int smallest = 65536;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return smallest;
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (const ifaddrs* interface = interfaces; interface != nullptr; interface = interface->ifa_next) {
    ifreq request{};
    std::strncpy(request.ifr_name, interface->ifa_name, IFNAMSIZ - 1);
    if ((interface->ifa_flags & IFF_LOOPBACK) == 0 && ioctl(any, SIOCGIFMTU, &request) == 0)
      smallest = std::min(smallest, request.ifr_mtu);
  }
  close(any);
  freeifaddrs(interfaces);
  return smallest;
}

}  // namespace plugfest::mutants
