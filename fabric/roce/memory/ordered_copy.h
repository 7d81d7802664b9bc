// Copies into memory that programs read meanwhile.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace plugfest::roce {

/// Copies as a NIC writes over PCIe: no aligned word of 8 bytes is visible in part, and the last word of an aligned
/// line of 128 bytes not before its other bytes. NCCL's protocols LL and LL128 poll flags in such words. memcpy
/// promises neither: with 2112 bytes and more glibc 2.36 uses one `rep movsb`, on some processors from the first
/// aligned byte of the source on, and writes the bytes before that one last.
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
      copy(kLine - kWord);  // of constant size: inlined
      copy(kWord);
      continue;
    }
    const std::size_t in_word = address % kWord, rest_of_line = kLine - address % kLine;
    const std::size_t next = in_word != 0 ? kWord - in_word : rest_of_line > kWord ? rest_of_line - kWord : kWord;
    copy(std::min(next, from.size()));
  }
}

}  // namespace plugfest::roce
