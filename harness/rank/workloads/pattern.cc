#include "harness/rank/workloads/pattern.h"

#include <algorithm>
#include <cstring>

namespace plugfest::rank {

namespace {

// Every step is a bijection of 64 bits, so words of one position differ whenever their seeds do.
constexpr std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  return x ^ (x >> 32);
}

class Words {
 public:
  explicit Words(std::uint64_t seed) : next_(scramble(seed * 0x9e3779b97f4a7c15ull + 1)) {}
  std::uint64_t operator()() { return scramble(next_++); }

 private:
  std::uint64_t next_;
};

void note(Difference& difference, std::size_t offset, const std::byte* got, const std::byte* expected,
          std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (got[i] == expected[i]) continue;
    if (difference.bytes++ == 0) {
      difference.offset = offset + i;
      difference.got = static_cast<std::uint8_t>(got[i]);
      difference.expected = static_cast<std::uint8_t>(expected[i]);
    }
  }
}

}  // namespace

std::uint64_t mix(std::uint64_t seed, std::uint64_t index) {
  return scramble(scramble(seed * 0x9e3779b97f4a7c15ull + 1) + index);
}

void fill_pattern(void* memory, std::size_t size, std::uint64_t seed) {
  auto* bytes = static_cast<std::byte*>(memory);
  Words words(seed);
  for (std::size_t at = 0; at < size; at += 8) {
    const std::uint64_t word = words();
    std::memcpy(bytes + at, &word, std::min<std::size_t>(8, size - at));
  }
}

Difference compare_pattern(const void* memory, std::size_t size, std::uint64_t seed) {
  const auto* bytes = static_cast<const std::byte*>(memory);
  Words words(seed);
  Difference difference;
  for (std::size_t at = 0; at < size; at += 8) {
    const std::uint64_t word = words();
    const std::size_t length = std::min<std::size_t>(8, size - at);
    if (std::memcmp(bytes + at, &word, length) == 0) continue;
    note(difference, at, bytes + at, reinterpret_cast<const std::byte*>(&word), length);
  }
  return difference;
}

Difference compare_byte(const void* memory, std::size_t size, std::uint8_t value) {
  const auto* bytes = static_cast<const std::byte*>(memory);
  Difference difference;
  std::byte expected[4096];
  std::memset(expected, value, sizeof expected);
  for (std::size_t at = 0; at < size; at += sizeof expected) {
    const std::size_t length = std::min(sizeof expected, size - at);
    if (std::memcmp(bytes + at, expected, length) != 0) note(difference, at, bytes + at, expected, length);
  }
  return difference;
}

}  // namespace plugfest::rank
