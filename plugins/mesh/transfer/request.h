// Requests: the pointer that NCCL holds, which shows that it is stale or invalid, and the indexes of a table of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace mesh {

/// Identifies one outstanding send or receive. Its pointer is never NULL and never 1, the value that NCCL presets.
struct RequestId {
  std::uint16_t comm = 0;        ///< index of the comm
  std::uint8_t comm_serial = 0;  ///< differs between comms with the same index
  std::uint8_t index = 0;        ///< of the request in its comm
  std::uint16_t generation = 0;  ///< differs between requests with the same index

  void* pointer() const {
    return reinterpret_cast<void*>(kMark << 48 | std::uintptr_t{comm_serial} << 40 | std::uintptr_t{index} << 32 |
                                   std::uintptr_t{generation} << 16 | comm);
  }
  /// Returns nullopt if `pointer` is not the pointer of a request.
  static std::optional<RequestId> from(const void* pointer) {
    const auto value = reinterpret_cast<std::uintptr_t>(pointer);
    if (value >> 48 != kMark) return std::nullopt;
    return RequestId{.comm = static_cast<std::uint16_t>(value),
                     .comm_serial = static_cast<std::uint8_t>(value >> 40),
                     .index = static_cast<std::uint8_t>(value >> 32),
                     .generation = static_cast<std::uint16_t>(value >> 16)};
  }

 private:
  static constexpr std::uintptr_t kMark = 0x4d53;
};

/// The free indexes of a table of `kSize` entries. The index that became free last is taken first. Not thread-safe.
template <std::size_t kSize>
class FreeIndexes {
  static_assert(kSize <= 256);

 public:
  FreeIndexes() {
    for (std::size_t i = 0; i < kSize; ++i) indexes_[i] = static_cast<std::uint8_t>(kSize - 1 - i);
  }

  bool empty() const { return count_ == 0; }
  /// Precondition: not empty.
  std::size_t take() { return indexes_[--count_]; }
  void give_back(std::size_t index) { indexes_[count_++] = static_cast<std::uint8_t>(index); }

 private:
  std::array<std::uint8_t, kSize> indexes_;
  std::size_t count_ = kSize;
};

/// Indexes of a table of `kSize` entries, first in, first out. Not thread-safe.
template <std::size_t kSize>
class IndexQueue {
  static_assert(kSize <= 256);

 public:
  bool empty() const { return first_ == end_; }
  /// Precondition: fewer than kSize are in the queue.
  void push(std::size_t index) { indexes_[end_++ % kSize] = static_cast<std::uint8_t>(index); }
  /// Precondition of both: not empty.
  std::uint8_t front() const { return indexes_[first_ % kSize]; }
  void pop() { ++first_; }

 private:
  std::array<std::uint8_t, kSize> indexes_;
  std::size_t first_ = 0;
  std::size_t end_ = 0;
};

}  // namespace mesh
