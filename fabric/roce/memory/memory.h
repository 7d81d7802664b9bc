// Protection domains, memory regions and memory windows: which memory the NIC may access, and for which queue pairs.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "fabric/roce/memory/nic_lock.h"

namespace plugfest::roce {

class MemoryTable;
class MemoryWindow;

/// A queue pair may access only memory of its own protection domain. The object has an identity and no content.
class ProtectionDomain {
 public:
  /// `memory`: the NIC's table, which must outlive the domain.
  explicit ProtectionDomain(MemoryTable& memory) : memory_(memory) {}
  ProtectionDomain(const ProtectionDomain&) = delete;
  ProtectionDomain& operator=(const ProtectionDomain&) = delete;
  MemoryTable& memory() const { return memory_; }

 private:
  MemoryTable& memory_;
};

/// A range of the program's memory that the NIC may access, registered as long as the object exists.
///
/// Keys are random and never 0. After the destructor has returned, no thread of the NIC accesses the memory; packets
/// and work requests with its key fail.
///
/// Thread safety: construction and destruction from any thread.
class MemoryRegion {
 public:
  /// `address`, `length`: the memory; it is not pinned. Requests fail whose memory the program has unmapped. `iova`:
  /// the address of its first byte in packets and scatter/gather entries, usually `address` itself (0 for
  /// IBV_ACCESS_ZERO_BASED). `access`: ibv_access_flags; flags in IBV_ACCESS_OPTIONAL_RANGE are ignored. Errors:
  /// std::system_error with EINVAL for remote write or atomic access without local write, or if the range wraps;
  /// EOPNOTSUPP for unsupported access flags; EFAULT for memory that hardware could not pin (mapping.h).
  MemoryRegion(ProtectionDomain& domain, void* address, std::size_t length, std::uint64_t iova, unsigned access);
  ~MemoryRegion();

  /// Registers other memory, or the same with other access, under the same key. Errors: as the constructor; EBUSY if
  /// windows are bound. Then nothing changes.
  void change(ProtectionDomain& domain, void* address, std::size_t length, std::uint64_t iova, unsigned access);

  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  /// Both lkey and rkey.
  std::uint32_t key() const { return key_; }
  std::uint64_t iova() const { return iova_; }
  unsigned access() const { return access_; }

  /// Number of memory windows bound to the region. Takes the NIC's lock.
  std::size_t bound_windows() const;

  /// Returns the memory of `length` bytes at `iova`. Null if the range is not inside the region, the domain differs, or
  /// an access flag of `needed` is missing.
  std::byte* find(const ProtectionDomain& domain, std::uint64_t iova, std::uint64_t length, unsigned needed) const {
    if (&domain != domain_ || (access_ & needed) != needed) return nullptr;
    if (iova < iova_ || length > length_ || iova - iova_ > length_ - length) return nullptr;
    return address_ + (iova - iova_);
  }

 private:
  ProtectionDomain* domain_;
  std::byte* address_;
  std::size_t length_;
  std::uint64_t iova_;
  unsigned access_;
  std::uint32_t key_ = 0;
  std::size_t windows_ = 0;  ///< memory windows bound to it; guarded by the NIC's lock
  friend class MemoryWindow;
};

/// The memory regions and windows of one NIC by key. Guarded by the NIC's lock.
///
/// The high 24 bits of a key are the index in this table. The low 8 bits of a window's key are chosen by the program
/// that binds it. Both are random at first.
class MemoryTable {
 public:
  explicit MemoryTable(NicLock& lock) : lock_(lock) {}

  NicLock& lock() const { return lock_; }

  const MemoryRegion* find(std::uint32_t key) const {
    const auto found = entries_.find(index_of(key));
    return found == entries_.end() || found->second.key != key ? nullptr : found->second.region;
  }
  MemoryRegion* find(std::uint32_t key) {
    return const_cast<MemoryRegion*>(static_cast<const MemoryTable*>(this)->find(key));
  }

  /// The window whose key has these high 24 bits, or null.
  MemoryWindow* window_at(std::uint32_t key) const {
    const auto found = entries_.find(index_of(key));
    return found == entries_.end() ? nullptr : found->second.window;
  }

  /// The memory of `length` bytes at `address` for a peer that uses the key of a region, or of a window bound for this
  /// queue pair. Null if the peer may not access it with the flags of `needed`.
  std::byte* find_for_peer(const ProtectionDomain& domain, std::uint32_t queue_pair_number, std::uint32_t key,
                           std::uint64_t address, std::uint64_t length, unsigned needed) const;

  /// Adds a region or window and returns its key. Errors: std::system_error with ENOMEM if none is left.
  std::uint32_t add(MemoryRegion& region);
  std::uint32_t add(MemoryWindow& window);
  void remove(std::uint32_t key) { entries_.erase(index_of(key)); }

  /// Changes the low 8 bits of a window's key.
  void set_key(std::uint32_t key) { entries_.at(index_of(key)).key = key; }

  /// Unbinds all windows that are bound to a region, or by a queue pair.
  void unbind_all(const MemoryRegion& region);
  void unbind_all(std::uint32_t queue_pair_number);

 private:
  struct Entry {
    std::uint32_t key = 0;
    MemoryRegion* region = nullptr;
    MemoryWindow* window = nullptr;
  };

  static std::uint32_t index_of(std::uint32_t key) { return key >> 8; }
  std::uint32_t add(Entry entry);

  NicLock& lock_;
  std::unordered_map<std::uint32_t, Entry> entries_;
  std::size_t windows_ = 0;  ///< windows ever added; unbind_all() does nothing if it is 0
};

struct WindowBinding {
  std::uint32_t key;         ///< new key of the window, with the same high 24 bits
  std::uint32_t region_key;  ///< lkey
  std::uint64_t address;     ///< first address in the region
  std::uint64_t length;      ///< bytes; 0 unbinds a window of type 1
  unsigned access;           ///< ibv_access_flags for peers
};

/// A part of a memory region with its own key, bound and invalidated by work requests. A window of type 1 is valid for
/// every queue pair of its protection domain and may be bound again at any time. A window of type 2 is valid only for
/// the queue pair that bound it (type 2B), and must be invalidated before it is bound again. Source: InfiniBand
/// Architecture Specification vol. 1, sections 10.6.7.2 and 10.8.3.
class MemoryWindow {
 public:
  /// Creates an unbound window. Errors: std::system_error with EINVAL for another type, ENOMEM.
  /// Thread safety: construction and destruction from any thread.
  MemoryWindow(ProtectionDomain& domain, ibv_mw_type type);
  ~MemoryWindow();
  MemoryWindow(const MemoryWindow&) = delete;
  MemoryWindow& operator=(const MemoryWindow&) = delete;

  ibv_mw_type type() const { return type_; }

  /// The current rkey. Takes the NIC's lock.
  std::uint32_t key() const;

  // The members below need the NIC's lock.

  /// Binds the window. Returns false and changes nothing if the window is already bound (type 2), belongs to another
  /// domain than the queue pair, or has length 0 (type 2). The same holds if the region belongs to another domain, does
  /// not contain the range, was registered without IBV_ACCESS_MW_BIND, or lacks local write access that the binding
  /// needs.
  bool bind(const WindowBinding& binding, const ProtectionDomain& domain, std::uint32_t queue_pair_number);

  /// Unbinds the window because of a request of a queue pair or of its peer. False if the window is not bound by this
  /// queue pair with this key, or is of type 1.
  bool invalidate(std::uint32_t key, std::uint32_t queue_pair_number);

  void unbind();
  bool is_bound_to(const MemoryRegion& region) const { return region_ == &region; }
  bool is_bound_for(std::uint32_t queue_pair_number) const {
    return region_ != nullptr && type_ == IBV_MW_TYPE_2 && queue_pair_number_ == queue_pair_number;
  }

  /// Implements MemoryTable::find_for_peer() for this window.
  std::byte* find(const ProtectionDomain& domain, std::uint32_t queue_pair_number, std::uint64_t address,
                  std::uint64_t length, unsigned needed) const;

 private:
  ProtectionDomain& domain_;
  const ibv_mw_type type_;
  std::uint32_t key_ = 0;
  MemoryRegion* region_ = nullptr;  ///< null: not bound
  std::byte* bytes_ = nullptr;      ///< first byte in this process
  std::uint64_t first_ = 0;         ///< address of the first byte for peers
  std::uint64_t length_ = 0;
  unsigned access_ = 0;
  std::uint32_t queue_pair_number_ = 0;
};

}  // namespace plugfest::roce
