// Shares memory regions of a NIC between registrations.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace mesh {

/// The registered ranges of one NIC and their memory regions. Thread-safe.
///
/// A registration shares the region of another one only while that one is alive, covers it, and has the same access.
/// Its memory has been mapped since then, so the pages of the region are the present ones. Nothing outlives the last
/// registration, and a region that has lost the registration it was made for is not used for ranges beyond those that
/// are still registered.
class RegionCache {
  using Region = std::shared_ptr<ibv_mr>;
  struct Entry {
    std::size_t bytes;
    int access;
    Region region;
  };
  using Entries = std::multimap<std::uintptr_t, Entry>;

 public:
  /// A registered range; it ends with the object.
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
    /// Whether another registration uses the region, too.
    bool is_shared() const {
      const std::lock_guard lock(cache_.mutex_);
      return region_.use_count() > 2;  // this object and its entry
    }

   private:
    RegionCache& cache_;
    Region region_;
    Entries::iterator entry_;
  };

  /// The range with the region of a covering one, or with one that `make` registers. `make` returns null on an error;
  /// then the result is null, and errno is that of `make`. Several threads may run `make` at once.
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
    for (auto each = entries_.upper_bound(begin); each != entries_.begin();) {
      --each;
      const std::size_t offset = begin - each->first;
      if (offset >= largest_) break;
      if (each->second.access == access && offset <= each->second.bytes && bytes <= each->second.bytes - offset) {
        return each->second.region;
      }
    }
    return nullptr;
  }

  std::mutex mutex_;
  Entries entries_;          ///< by their first address
  std::size_t largest_ = 0;  ///< size of the largest range so far
};

}  // namespace mesh
