// Polls. The kernel has events for both, but an event before the subscription would be lost.
#include "fabric/netns/kernel/readiness.h"

#include <fmt/format.h>
#include <linux/if_addr.h>
#include <net/if.h>
#include <netlink/netlink.h>
#include <netlink/route/link.h>
#include <netlink/socket.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "fabric/system/descriptor.h"

namespace plugfest::netns {
namespace {

constexpr int kOperationalUp = 6;  // IF_OPER_UP; its header conflicts with <net/if.h>
constexpr int kAttemptMs = 1;
constexpr int kCarrierAttempts = 5000;
constexpr int kAddressAttempts = 1000;

int setting_of(const std::string& interface, const char* name) {
  int value = -1;
  std::ifstream(fmt::format("/proc/sys/net/ipv6/conf/{}/{}", interface, name)) >> value;
  return value;
}

// Columns of if_inet6: address, index, prefix length, scope and flags in hexadecimal, name.
bool has_link_local_address(const std::string& interface) {
  constexpr unsigned kLinkScope = 0x20;
  std::ifstream rows("/proc/thread-self/net/if_inet6");
  for (std::string row; std::getline(rows, row);) {
    std::istringstream fields(row);
    std::string address, name;
    unsigned index = 0, prefix_length = 0, scope = 0, flags = 0;
    fields >> address >> std::hex >> index >> prefix_length >> scope >> flags >> name;
    if (name == interface && scope == kLinkScope && (flags & IFA_F_TENTATIVE) == 0) return true;
  }
  return false;
}

}  // namespace

bool is_interface_up(const std::string& interface) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  return ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) != 0;
}

// IFF_RUNNING is no indication: the kernel also sets it for a new interface whose state is unknown.
bool await_carrier(const std::string& interface) {
  const std::unique_ptr<nl_sock, decltype(&nl_socket_free)> socket(nl_socket_alloc(), nl_socket_free);
  int error = socket ? nl_connect(socket.get(), NETLINK_ROUTE) : -NLE_NOMEM;
  for (int attempt = 0; error >= 0 && attempt < kCarrierAttempts; ++attempt) {
    if (attempt > 0) usleep(kAttemptMs * 1000);
    rtnl_link* answer = nullptr;
    error = rtnl_link_get_kernel(socket.get(), 0, interface.c_str(), &answer);
    if (error < 0) break;
    const std::unique_ptr<rtnl_link, decltype(&rtnl_link_put)> link(answer, rtnl_link_put);
    if (rtnl_link_get_operstate(link.get()) == kOperationalUp) return true;
  }
  if (error < 0) throw std::runtime_error(fmt::format("{}: {}", interface, nl_geterror(error)));
  return false;
}

void require_carrier(const std::string& node, const std::string& interface) {
  if (!await_carrier(interface))
    throw std::runtime_error(fmt::format("{}: {}: no carrier although both ends are up", node, interface));
}

bool await_link_local_address(const std::string& interface) {
  if (setting_of(interface, "disable_ipv6") != 0 || setting_of(interface, "accept_dad") != 0) return true;
  for (int attempt = 0; attempt < kAddressAttempts; ++attempt) {
    if (has_link_local_address(interface)) return true;
    usleep(kAttemptMs * 1000);
  }
  return false;
}

}  // namespace plugfest::netns
