// The memory of one side of the model test: actual content and expected content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace plugfest::roce::model {

using Random = std::mt19937_64;

/// Returns a number from `least` to `most`, inclusive.
inline std::uint64_t draw(Random& random, std::uint64_t least, std::uint64_t most) {
  return std::uniform_int_distribution<std::uint64_t>(least, most)(random);
}
inline bool chance(Random& random, double probability) { return std::bernoulli_distribution(probability)(random); }

/// A range of bytes in a ModelMemory.
struct Range {
  std::size_t offset = 0;
  std::uint32_t length = 0;

  bool overlaps(const Range& other) const {
    return offset < other.offset + other.length && other.offset < offset + length;
  }
};

/// Memory that a NIC reads and writes (actual), and a copy that the model maintains (expected).
class ModelMemory {
 public:
  /// Fills both with the same random bytes.
  ModelMemory(std::size_t bytes, Random& random);

  /// Reserves memory at a random distance behind the previous reservation.
  Range reserve(Random& random, std::uint32_t length, std::size_t alignment = 1);
  /// Reserves `length` bytes in up to `max_pieces` pieces; pieces may be empty.
  std::vector<Range> reserve_pieces(Random& random, std::uint32_t length, unsigned max_pieces);

  std::span<std::uint8_t> actual(const Range& range) { return std::span(actual_).subspan(range.offset, range.length); }
  std::span<std::uint8_t> expected(const Range& range) {
    return std::span(expected_).subspan(range.offset, range.length);
  }
  bool matches(const Range& range);
  /// Writes `bytes` to the expected content of `pieces`, in order.
  void scatter_expected(const std::vector<Range>& pieces, std::span<const std::uint8_t> bytes);
  /// Makes the actual content the expected content.
  void accept(const Range& range);

  std::uint8_t* data() { return actual_.data(); }
  std::size_t size() const { return actual_.size(); }
  std::uint64_t address_of(const Range& range) const {
    return reinterpret_cast<std::uint64_t>(actual_.data() + range.offset);
  }

  /// Offset of the first byte whose actual content differs from the expected one; size() if there is none.
  std::size_t first_difference() const;

 private:
  std::vector<std::uint8_t> actual_;
  std::vector<std::uint8_t> expected_;
  std::size_t reserved_ = 0;
};

}  // namespace plugfest::roce::model
