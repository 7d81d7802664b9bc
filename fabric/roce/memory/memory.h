// Protection domains and memory regions: which memory the NIC may touch, and for whom.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "fabric/roce/memory/nic_lock.h"

namespace plugfest::roce {

class MemoryTable;
class MemoryWindow;

/// What queue pairs and memory must have in common to work together. Only the identity of the object matters.
class ProtectionDomain {
 public:
  /// `memory`: of the NIC; it must outlive the domain.
  explicit ProtectionDomain(MemoryTable& memory) : memory_(memory) {}
  ProtectionDomain(const ProtectionDomain&) = delete;
  ProtectionDomain& operator=(const ProtectionDomain&) = delete;
  MemoryTable& memory() const { return memory_; }

 private:
  MemoryTable& memory_;
};

/// One piece of the program's memory that the NIC may read and write, registered for its own lifetime.
///
/// Keys are random, never 0, and unknown to anyone who was not told. The destructor returns only when no thread of the
/// NIC touches the memory any more; packets and work requests that still name it fail their checks afterwards.
///
/// Thread safety: construction and destruction from any thread.
class MemoryRegion {
 public:
  /// `address`, `length`: the memory, which need not be pinned. `iova`: the address that peers and scatter/gather
  /// entries use for its first byte, usually `address` itself (0 for IBV_ACCESS_ZERO_BASED). `access`:
  /// ibv_access_flags; flags in IBV_ACCESS_OPTIONAL_RANGE are ignored. Errors: std::system_error with EINVAL if remote
  /// write or atomic access is asked for without local write, or the range wraps; EOPNOTSUPP for access flags that the
  /// NIC does not have.
  MemoryRegion(ProtectionDomain& domain, void* address, std::size_t length, std::uint64_t iova, unsigned access);
  ~MemoryRegion();
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  /// The same number serves as lkey and rkey.
  std::uint32_t key() const { return key_; }
  ProtectionDomain& domain() const { return domain_; }

  /// How many memory windows are bound to it. Takes the NIC's lock.
  std::size_t bound_windows() const;

  /// Where `length` bytes at `iova` lie in this process, or null if they are not all inside, the domain differs, or an
  /// access flag of `needed` is missing.
  std::byte* find(const ProtectionDomain& domain, std::uint64_t iova, std::uint64_t length, unsigned needed) const {
    if (&domain != &domain_ || (access_ & needed) != needed) return nullptr;
    if (iova < iova_ || length > length_ || iova - iova_ > length_ - length) return nullptr;
    return address_ + (iova - iova_);
  }

 private:
  ProtectionDomain& domain_;
  std::byte* address_;
  std::size_t length_;
  std::uint64_t iova_;
  unsigned access_;
  std::uint32_t key_ = 0;
  std::size_t windows_ = 0;  ///< bound to it; guarded by the NIC's lock
  friend class MemoryWindow;
};

/// The memory regions and windows of one NIC by key. Guarded by the NIC's lock.
///
/// The high 24 bits of a key are the place in this table, the low 8 belong to whoever binds a window; both are random
/// at first.
class MemoryTable {
 public:
  /// `lock`: the NIC's.
  explicit MemoryTable(NicLock& lock) : lock_(lock) {}

  NicLock& lock() const { return lock_; }

  const MemoryRegion* find(std::uint32_t key) const {
    const auto found = places_.find(place_of(key));
    return found == places_.end() || found->second.key != key ? nullptr : found->second.region;
  }
  MemoryRegion* find(std::uint32_t key) {
    return const_cast<MemoryRegion*>(static_cast<const MemoryTable*>(this)->find(key));
  }

  /// The window whose key has these high 24 bits, or null.
  MemoryWindow* window_at(std::uint32_t key) const {
    const auto found = places_.find(place_of(key));
    return found == places_.end() ? nullptr : found->second.window;
  }

  /// Where the peer of a queue pair may reach `length` bytes at `address` by a key: that of a region, or of a window
  /// bound for this queue pair. Null if it may not.
  std::byte* find_for_peer(const ProtectionDomain& domain, std::uint32_t queue_pair_number, std::uint32_t key,
                           std::uint64_t address, std::uint64_t length, unsigned needed) const;

  /// Gives the region or window a key. Errors: std::system_error with ENOMEM if none is left.
  std::uint32_t add(MemoryRegion& region);
  std::uint32_t add(MemoryWindow& window);
  void remove(std::uint32_t key) { places_.erase(place_of(key)); }

  /// The low 8 bits of a window's key change.
  void rename(std::uint32_t key) { places_.at(place_of(key)).key = key; }

  /// Ends what is bound to a region, or for a queue pair, that is about to go.
  void unbind_all(const MemoryRegion& region);
  void unbind_all(std::uint32_t queue_pair_number);

 private:
  struct Place {
    std::uint32_t key = 0;
    MemoryRegion* region = nullptr;
    MemoryWindow* window = nullptr;
  };

  static std::uint32_t place_of(std::uint32_t key) { return key >> 8; }
  std::uint32_t add(Place place);

  NicLock& lock_;
  std::unordered_map<std::uint32_t, Place> places_;
  std::size_t windows_ = 0;  ///< among them, ever: without one nothing needs to be looked for
};

}  // namespace plugfest::roce
