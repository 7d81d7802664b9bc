// Reads the kernel's list of feature names through the ethtool ioctl, then sets the bit of the requested feature.
#include "fabric/netns/kernel/offload.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "fabric/system/descriptor.h"

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

  [[noreturn]] void fail() const {
    throw std::runtime_error(fmt::format("features of {}: {}", interface_, std::strerror(errno)));
  }

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
    if (ethtool.call(change.get()) != 0) {
      throw std::runtime_error(
          fmt::format("features of {}: {} cannot be turned {}", interface, feature, on ? "on" : "off"));
    }
    return;
  }
  throw std::runtime_error(fmt::format("features of {}: this kernel lacks {}", interface, feature));
}

}  // namespace plugfest::netns
