// The NICs that the plugin offers: verbs ports with a RoCE v2 GID for an IP address of this host.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plugins/mesh/device/gid_table.h"
#include "plugins/mesh/settings.h"

namespace mesh {

/// Speed of a link in Mbit/s, from the width and speed codes of `ibv_port_attr`. Returns 0 for an unknown code.
int link_speed_mbps(int active_width, int active_speed);

/// The registered ranges of one NIC and their memory regions. Thread-safe.
///
/// A registration shares the region of another one only while that one is alive, covers it, and has the same access.
/// Its memory has stayed mapped since, so the pages of the region are the current ones. No region outlives its last
/// registration. After the registration that made a region has ended, the region serves only ranges that are covered by
/// registrations that remain.
class RegionCache {
  using Region = std::shared_ptr<ibv_mr>;
  struct Entry {
    std::size_t bytes;
    int access;
    Region region;
  };
  using Entries = std::multimap<std::uintptr_t, Entry>;

 public:
  /// A range that is registered as long as the object exists.
  class Range {
   public:
    Range(RegionCache& cache, std::uintptr_t begin, std::size_t bytes, int access, Region region)
        : cache_(cache), region_(std::move(region)) {
      const std::lock_guard lock(cache_.mutex_);
      entry_ = cache_.entries_.insert({begin, {bytes, access, region_}});
      cache_.largest_ = std::max(cache_.largest_, bytes);
    }
    ~Range() {
      const std::lock_guard lock(cache_.mutex_);
      cache_.entries_.erase(entry_);
    }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

    const ibv_mr& region() const { return *region_; }
    /// Whether another registration also uses the region.
    bool is_shared() const {
      const std::lock_guard lock(cache_.mutex_);
      return region_.use_count() > 2;  // this object and its entry hold two
    }

   private:
    RegionCache& cache_;
    Region region_;
    Entries::iterator entry_;
  };

  /// Returns a range with the region of a covering range, or with a region that `make` registers. `make` returns null
  /// on an error; then the result is null, and errno is as `make` has set it. Several threads may run `make` at once.
  std::unique_ptr<Range> add(std::uintptr_t begin, std::size_t bytes, int access,
                             const std::function<ibv_mr*()>& make) {
    Region region = find(begin, bytes, access);
    if (!region) {
      ibv_mr* made = make();
      if (made == nullptr) return nullptr;
      region = Region(made, ibv_dereg_mr);
    }
    return std::make_unique<Range>(*this, begin, bytes, access, std::move(region));
  }

 private:
  Region find(std::uintptr_t begin, std::size_t bytes, int access) {
    const std::lock_guard lock(mutex_);
    // Backwards, until no range is large enough to reach `begin`.
    for (auto entry = entries_.upper_bound(begin); entry != entries_.begin();) {
      --entry;
      const std::size_t offset = begin - entry->first;
      if (offset >= largest_) break;
      if (entry->second.access == access && offset <= entry->second.bytes && bytes <= entry->second.bytes - offset)
        return entry->second.region;
    }
    return nullptr;
  }

  std::mutex mutex_;
  Entries entries_;          ///< the ranges by their first address
  std::size_t largest_ = 0;  ///< size of the largest range so far
};

/// An active verbs port with at least one address. It stays open as long as the object exists; connections share it.
/// Thread-safe once `find_devices` has returned it: only its addresses and regions change, and mutexes protect them.
class Device {
 public:
  Device(ibv_device* device, std::uint8_t port);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context* context() const { return context_; }
  ibv_pd* protection_domain() const { return protection_domain_; }
  std::uint8_t port() const { return port_; }
  int index() const { return index_; }  ///< index in the list of `find_devices`

  const std::string& name() const { return name_; }          ///< the verbs name; "mlx5_0:2" with several ports
  const std::string& pci_path() const { return pci_path_; }  ///< resolved sysfs path; empty unless it is a PCI device
  std::uint64_t guid() const { return guid_; }
  int speed_mbps() const { return link_speed_mbps(attributes_.active_width, attributes_.active_speed); }
  ibv_mtu mtu() const { return attributes_.active_mtu; }
  std::uint32_t max_message_bytes() const { return attributes_.max_msg_sz; }

  RegionCache& regions() const { return regions_; }
  GidTable& gids() const { return *gids_; }
  /// Whether the NIC's driver registers DMA-BUFs.
  bool takes_dma_buf() const;
  /// Whether the port is active now. Takes a system call on most NICs.
  bool port_is_active() const;

 private:
  friend std::vector<std::shared_ptr<const Device>> find_devices(const Settings& settings);
  bool read_port(std::optional<int> only_gid);

  ibv_context* context_ = nullptr;
  ibv_pd* protection_domain_ = nullptr;
  std::uint8_t port_;
  int index_ = 0;
  std::string name_;
  std::string pci_path_;
  std::uint64_t guid_ = 0;
  ibv_port_attr attributes_ = {};  ///< when `find_devices` read them
  mutable RegionCache regions_;
  std::unique_ptr<GidTable> gids_;
};

using DeviceList = std::vector<std::shared_ptr<const Device>>;

/// Maximum number of devices: NCCL_MAX_NETDEVS, which NCCL does not check.
inline constexpr std::size_t kMaxDevices = 128;

/// All usable ports, in the order of verbs. Logs at level INFO each port, why a port is not used, and which ports share
/// a subnet. Empty if the host has no RDMA.
DeviceList find_devices(const Settings& settings);

/// A subnet on which NICs of this host have addresses.
struct SharedSubnet {
  std::string subnet;                ///< "192.168.100.0/24"
  std::vector<std::size_t> devices;  ///< indexes in the list, ascending
  bool mtu_differs = false;          ///< the NICs have different path MTUs
};

/// The subnets on which two or more NICs of the list have addresses.
std::vector<SharedSubnet> shared_subnets(const DeviceList& devices);

/// Bytes of an `ibv_mtu`: 256 to 4096.
constexpr int mtu_bytes(int mtu) { return 128 << mtu; }

}  // namespace mesh
