// Scatter/gather lists, resolved to memory of this process, and the copies to and from them.
#pragma once

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "fabric/roce/memory/memory.h"
#include "fabric/system/fault_guard.h"

namespace plugfest::roce {

/// Copies as a NIC writes over PCIe: no aligned word of 8 bytes is visible in part, and the last word of an aligned
/// line of 128 bytes is not visible before its other bytes. NCCL's protocols LL and LL128 poll flags in such words.
/// memcpy promises neither: for 2112 bytes and more, glibc 2.36 uses one `rep movsb`. On some processors it starts at
/// the first aligned byte of the source and writes the bytes before that one last.
inline void copy_in_order(std::byte* to, std::span<const std::byte> from) {
  constexpr std::size_t kWord = 8, kLine = 128;
  const auto copy = [&](std::size_t count) {
    std::memcpy(to, from.data(), count);
    // Also keeps the compiler from joining the copies.
    std::atomic_thread_fence(std::memory_order_release);
    to += count;
    from = from.subspan(count);
  };
  while (!from.empty()) {
    const auto address = reinterpret_cast<std::uintptr_t>(to);
    if (address % kLine == 0 && from.size() >= kLine) {
      copy(kLine - kWord);  // a constant size, so the call is inlined
      copy(kWord);
      continue;
    }
    const std::size_t in_word = address % kWord, rest_of_line = kLine - address % kLine;
    const std::size_t next = in_word != 0 ? kWord - in_word : rest_of_line > kWord ? rest_of_line - kWord : kWord;
    copy(std::min(next, from.size()));
  }
}

/// Calls copy_in_order() for memory of the program. Returns false if the program has unmapped some of it.
inline bool place_in_order(std::byte* to, std::span<const std::byte> from) {
  return guarded({to, from.size()}, [&] { copy_in_order(to, from); });
}

inline constexpr int kMaxSegments = 16;  ///< scatter/gather entries of a work request

/// The memory of a scatter/gather list, in order. Valid while the NIC's lock is held, because no region can be
/// deregistered during that time.
class ScatterGatherList {
 public:
  /// Looks up the entries of a list, at most kMaxSegments. Returns false if an entry is not inside a region of the
  /// domain with the access flags of `needed`. Entries of length 0 are skipped; their keys are not checked.
  bool resolve(const MemoryTable& memory, const ProtectionDomain& domain, std::span<const ibv_sge> list,
               unsigned needed) {
    count_ = 0;
    for (const ibv_sge& entry : list) {
      if (entry.length == 0) continue;
      const MemoryRegion* const region = memory.find(entry.lkey);
      std::byte* const at = region == nullptr ? nullptr : region->find(domain, entry.addr, entry.length, needed);
      if (at == nullptr) return false;
      add(at, entry.length);
    }
    return true;
  }

  /// Sets a list of one piece of memory.
  void set(std::byte* bytes, std::size_t length) {
    count_ = 0;
    if (length > 0) add(bytes, length);
  }

  /// Writes the pieces of `length` bytes beginning at `offset` to `out`, which has room for kMaxSegments. Returns their
  /// number. The range must be inside the list.
  std::size_t slice(std::size_t offset, std::size_t length, iovec* out) const {
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

  /// The memory at `offset` up to the end of its piece; empty beyond the end of the list.
  std::span<std::byte> contiguous_from(std::size_t offset) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (offset < pieces_[i].iov_len)
        return {static_cast<std::byte*>(pieces_[i].iov_base) + offset, pieces_[i].iov_len - offset};
      offset -= pieces_[i].iov_len;
    }
    return {};
  }

  /// Copies bytes into the list, beginning at `offset`. The range must be inside the list. False if the program has
  /// unmapped some of the memory.
  bool copy_in(std::size_t offset, std::span<const std::byte> bytes) const {
    iovec parts[kMaxSegments];
    const std::size_t count = slice(offset, bytes.size(), parts);
    for (std::size_t i = 0; i < count; ++i) {
      if (!place_in_order(static_cast<std::byte*>(parts[i].iov_base), bytes.first(parts[i].iov_len))) return false;
      bytes = bytes.subspan(parts[i].iov_len);
    }
    return true;
  }

 private:
  void add(std::byte* bytes, std::size_t length) { pieces_[count_++] = {bytes, length}; }

  std::size_t count_ = 0;
  std::array<iovec, kMaxSegments> pieces_;
};

}  // namespace plugfest::roce
