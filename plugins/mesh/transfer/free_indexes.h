// The free entries of a fixed table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace mesh {

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

}  // namespace mesh
