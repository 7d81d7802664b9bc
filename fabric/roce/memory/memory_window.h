// Memory windows: a part of a memory region that peers reach by a key of its own, which work requests give and take.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "fabric/roce/memory/memory.h"

namespace plugfest::roce {

/// What a bind request asks for.
struct WindowBinding {
  std::uint32_t key = 0;         ///< that the window gets: its high 24 bits say which window
  std::uint32_t region_key = 0;  ///< lkey
  std::uint64_t address = 0;     ///< in the region, as the region counts
  std::uint64_t length = 0;      ///< in bytes; 0 ends the binding of a window of type 1
  unsigned access = 0;           ///< ibv_access_flags for peers
};

/// One window. Type 1 is for every queue pair of its protection domain, and may be bound anew at any time; type 2 is
/// for the queue pair that bound it alone (2B), and must be invalidated before it is bound anew.
/// Source: InfiniBand Architecture Specification vol. 1, sections 10.6.7.2 and 10.8.3.
class MemoryWindow {
 public:
  /// Not bound to anything. Errors: std::system_error with EINVAL for another type, ENOMEM.
  /// Thread safety: construction and destruction from any thread.
  MemoryWindow(ProtectionDomain& domain, ibv_mw_type type);
  ~MemoryWindow();
  MemoryWindow(const MemoryWindow&) = delete;
  MemoryWindow& operator=(const MemoryWindow&) = delete;

  ibv_mw_type type() const { return type_; }

  /// rkey, as it was made or last bound. Takes the NIC's lock.
  std::uint32_t key() const;

  // --- with the NIC's lock ---

  /// False if the binding may not be: the window is bound already (type 2), belongs to another domain than the queue
  /// pair, or has no length (type 2); the region is another domain's, does not contain it, was registered without
  /// IBV_ACCESS_MW_BIND, or may not be written (access for writing or atomics). The window then stays as it is.
  bool bind(const WindowBinding& binding, const ProtectionDomain& domain, std::uint32_t queue_pair_number);

  /// Ends the binding on behalf of a queue pair, by a request of its own or of its peer. False if there is none for it
  /// by this key, or the window is of type 1.
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
  std::uint64_t first_ = 0;         ///< what peers call the first byte
  std::uint64_t length_ = 0;
  unsigned access_ = 0;
  std::uint32_t queue_pair_number_ = 0;
};

}  // namespace plugfest::roce
