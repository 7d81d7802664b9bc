// Memory windows: parts of a memory region with keys of their own, bound and invalidated by work requests.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "fabric/roce/memory/memory.h"

namespace plugfest::roce {

/// The attributes of a bind request.
struct WindowBinding {
  std::uint32_t key = 0;         ///< new key of the window, with the same high 24 bits
  std::uint32_t region_key = 0;  ///< lkey
  std::uint64_t address = 0;     ///< in the region
  std::uint64_t length = 0;      ///< in bytes; 0 unbinds a window of type 1
  unsigned access = 0;           ///< ibv_access_flags for peers
};

/// One window. A window of type 1 is valid for every queue pair of its protection domain and may be bound again at any
/// time. A window of type 2 is valid only for the queue pair that bound it (type 2B), and must be invalidated before it
/// is bound again. Source: InfiniBand Architecture Specification vol. 1, sections 10.6.7.2 and 10.8.3.
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

  // --- with the NIC's lock ---

  /// Binds the window. Returns false and changes nothing if the window is already bound (type 2), belongs to another
  /// domain than the queue pair, or has length 0 (type 2); or if the region belongs to another domain, does not contain
  /// the range, was registered without IBV_ACCESS_MW_BIND, or lacks local write access that the binding needs.
  bool bind(const WindowBinding& binding, const ProtectionDomain& domain, std::uint32_t queue_pair_number);

  /// Unbinds the window because of a request of a queue pair or of its peer. False if the window is not bound by this
  /// queue pair with this key, or is of type 1.
  bool invalidate(std::uint32_t key, std::uint32_t queue_pair_number);

  void unbind();
  bool is_bound_to(const MemoryRegion& region) const { return region_ == &region; }
  bool is_bound_for(std::uint32_t queue_pair_number) const {
    return region_ != nullptr && type_ == IBV_MW_TYPE_2 && queue_pair_number_ == queue_pair_number;
  }

  /// As MemoryTable::find_for_peer.
  std::byte* find(const ProtectionDomain& domain, std::uint32_t queue_pair_number, std::uint64_t address,
                  std::uint64_t length, unsigned needed) const;

 private:
  ProtectionDomain& domain_;
  const ibv_mw_type type_;
  std::uint32_t key_ = 0;
  MemoryRegion* region_ = nullptr;  ///< null: not bound
  std::byte* bytes_ = nullptr;      ///< in this process
  std::uint64_t first_ = 0;         ///< address of the first byte for peers
  std::uint64_t length_ = 0;
  unsigned access_ = 0;
  std::uint32_t queue_pair_number_ = 0;
};

}  // namespace plugfest::roce
