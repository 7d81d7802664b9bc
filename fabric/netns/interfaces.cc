// set_feature() reads the kernel's list of feature names through the ethtool ioctl, then sets the bit of the feature.
#include "fabric/netns/interfaces.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/if_addr.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netlink/netlink.h>
#include <netlink/route/link.h>
#include <netlink/socket.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "fabric/system/file.h"
#include "fabric/system/wait.h"

namespace plugfest::netns {
namespace {

// Aligned memory for a structure of ethtool that ends in an array.
template <typename Header>
class Block {
 public:
  explicit Block(std::size_t tail_bytes) : words_((sizeof(Header) + tail_bytes + 7) / 8) {}
  Header* get() { return reinterpret_cast<Header*>(words_.data()); }
  Header* operator->() { return get(); }

 private:
  std::vector<std::uint64_t> words_;
};

class Ethtool {
 public:
  explicit Ethtool(const std::string& interface) : interface_(interface) {
    socket_ = Descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket_.get() < 0) fail();
  }

  // Returns the result of the ioctl, which is a set of flags for some commands.
  int call(void* command) {
    ifreq request = {};
    if (interface_.size() >= IFNAMSIZ) {
      errno = ENODEV;
      fail();
    }
    std::strcpy(request.ifr_name, interface_.c_str());
    request.ifr_data = static_cast<char*>(command);
    const int result = ioctl(socket_.get(), SIOCETHTOOL, &request);
    if (result < 0) fail();
    return result;
  }

  [[noreturn]] void fail() const { throw_errno("access the features of " + interface_); }

 private:
  std::string interface_;
  Descriptor socket_;
};

}  // namespace

void set_feature(const std::string& interface, std::string_view feature, bool on) {
  Ethtool ethtool(interface);

  Block<ethtool_sset_info> sizes(sizeof(std::uint32_t));
  sizes->cmd = ETHTOOL_GSSET_INFO;
  sizes->sset_mask = std::uint64_t{1} << ETH_SS_FEATURES;
  ethtool.call(sizes.get());
  const std::uint32_t count = sizes->data[0];

  Block<ethtool_gstrings> names(std::size_t{count} * ETH_GSTRING_LEN);
  names->cmd = ETHTOOL_GSTRINGS;
  names->string_set = ETH_SS_FEATURES;
  names->len = count;
  ethtool.call(names.get());

  for (std::uint32_t bit = 0; bit < count; ++bit) {
    const char* name = reinterpret_cast<const char*>(names->data) + std::size_t{bit} * ETH_GSTRING_LEN;
    if (feature != std::string_view(name, strnlen(name, ETH_GSTRING_LEN))) continue;

    const std::uint32_t blocks = (count + 31) / 32;
    Block<ethtool_sfeatures> change(blocks * sizeof(ethtool_set_features_block));
    change->cmd = ETHTOOL_SFEATURES;
    change->size = blocks;
    change->features[bit / 32].valid = 1u << bit % 32;
    change->features[bit / 32].requested = on ? 1u << bit % 32 : 0;
    if (ethtool.call(change.get()) != 0)
      throw std::runtime_error(fmt::format("cannot turn {} {} on interface {}: it does not permit the change", feature,
                                           on ? "on" : "off", interface));
    return;
  }
  throw std::runtime_error(
      fmt::format("cannot set {} of interface {}: this kernel lacks the feature", feature, interface));
}

namespace {

constexpr int kOperationalUp = 6;  // IF_OPER_UP; its header conflicts with <net/if.h>
constexpr std::chrono::seconds kCarrierTimeout{5};
constexpr std::chrono::seconds kAddressTimeout{1};

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
  interface.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  return ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) != 0;
}

// IFF_RUNNING does not indicate it: the kernel also sets it for a new interface whose state is unknown.
bool await_carrier(const std::string& interface) {
  const std::unique_ptr<nl_sock, decltype(&nl_socket_free)> socket(nl_socket_alloc(), nl_socket_free);
  int error = socket ? nl_connect(socket.get(), NETLINK_ROUTE) : -NLE_NOMEM;
  const bool up = wait_until(
      [&] {
        rtnl_link* answer = nullptr;
        if (error >= 0) error = rtnl_link_get_kernel(socket.get(), 0, interface.c_str(), &answer);
        if (error < 0) return true;
        const std::unique_ptr<rtnl_link, decltype(&rtnl_link_put)> link(answer, rtnl_link_put);
        return rtnl_link_get_operstate(link.get()) == kOperationalUp;
      },
      kCarrierTimeout);
  if (error < 0)
    throw std::runtime_error(fmt::format("cannot read the state of interface {}: {}", interface, nl_geterror(error)));
  return up;
}

void require_carrier(const std::string& node, const std::string& interface) {
  if (!await_carrier(interface))
    throw std::runtime_error(fmt::format("{}: {}: no carrier although both ends are up", node, interface));
}

bool await_link_local_address(const std::string& interface) {
  if (setting_of(interface, "disable_ipv6") != 0 || setting_of(interface, "accept_dad") != 0) return true;
  return wait_until([&] { return has_link_local_address(interface); }, kAddressTimeout);
}

}  // namespace plugfest::netns
