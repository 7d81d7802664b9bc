// Scatter/gather lists as memory of this process.
#pragma once

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/qp/receive_queue.h"

namespace plugfest::roce {

/// ScatterGatherList of memory, in order. Valid as long as the NIC's lock is held: no region can go away meanwhile.
class ScatterGatherList {
 public:
  /// Resolves a list against its protection domain. Returns false if an entry is not inside a region of the domain with
  /// the access flags of `needed`. Entries of length 0 are left out, whatever their key.
  bool resolve(const MemoryTable& memory, const ProtectionDomain& domain, std::span<const ibv_sge> list,
               unsigned needed) {
    count_ = 0;
    total_ = 0;
    for (const ibv_sge& entry : list) {
      if (entry.length == 0) continue;
      const MemoryRegion* const region = memory.find(entry.lkey);
      std::byte* const at = region == nullptr ? nullptr : region->find(domain, entry.addr, entry.length, needed);
      if (at == nullptr) return false;
      add(at, entry.length);
    }
    return true;
  }

  void set(std::byte* bytes, std::size_t length) {
    count_ = 0;
    total_ = 0;
    if (length > 0) add(bytes, length);
  }

  std::size_t total() const { return total_; }

  /// Puts the pieces of `length` bytes from `offset` on into `out`, which has room for kMaxSegments. Returns how many.
  /// The range must lie inside.
  std::size_t cut(std::size_t offset, std::size_t length, iovec* out) const {
    std::size_t made = 0;
    for (std::size_t i = 0; length > 0; ++i) {
      if (offset >= pieces_[i].iov_len) {
        offset -= pieces_[i].iov_len;
        continue;
      }
      const std::size_t part = length < pieces_[i].iov_len - offset ? length : pieces_[i].iov_len - offset;
      out[made++] = {static_cast<std::byte*>(pieces_[i].iov_base) + offset, part};
      length -= part;
      offset = 0;
    }
    return made;
  }

  /// The memory from `offset` on, up to the end of the piece that this is in; nothing beyond the end.
  std::span<std::byte> from(std::size_t offset) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (offset < pieces_[i].iov_len)
        return {static_cast<std::byte*>(pieces_[i].iov_base) + offset, pieces_[i].iov_len - offset};
      offset -= pieces_[i].iov_len;
    }
    return {};
  }

  /// Copies bytes into the pieces, from `offset` on. The range must lie inside.
  void copy_in(std::size_t offset, std::span<const std::byte> bytes) const {
    iovec parts[kMaxSegments];
    const std::size_t count = cut(offset, bytes.size(), parts);
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(parts[i].iov_base, bytes.data(), parts[i].iov_len);
      bytes = bytes.subspan(parts[i].iov_len);
    }
  }

 private:
  void add(std::byte* bytes, std::size_t length) {
    pieces_[count_++] = {bytes, length};
    total_ += length;
  }

  std::size_t count_ = 0;
  std::size_t total_ = 0;
  std::array<iovec, kMaxSegments> pieces_;
};

}  // namespace plugfest::roce
