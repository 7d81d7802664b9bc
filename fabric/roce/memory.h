// Protection domains and memory regions: which memory the NIC may touch, and for whom.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace plugfest::roce {

class Nic;

/// What queue pairs and memory regions must have in common to work together. An identity, nothing more.
class ProtectionDomain {
 public:
  explicit ProtectionDomain(Nic& nic) : nic_(nic) {}
  ProtectionDomain(const ProtectionDomain&) = delete;
  ProtectionDomain& operator=(const ProtectionDomain&) = delete;
  Nic& nic() const { return nic_; }

 private:
  Nic& nic_;
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
};

/// The memory regions of one NIC by key. Guarded by the NIC's lock.
class MemoryTable {
 public:
  const MemoryRegion* find(std::uint32_t key) const {
    const auto found = regions_.find(key);
    return found == regions_.end() ? nullptr : found->second;
  }
  /// Gives the region a key.
  std::uint32_t add(const MemoryRegion& region);
  void remove(std::uint32_t key) { regions_.erase(key); }

 private:
  std::unordered_map<std::uint32_t, const MemoryRegion*> regions_;
};

}  // namespace plugfest::roce
