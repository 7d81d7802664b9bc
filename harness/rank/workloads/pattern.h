// Contents of messages: bytes computed from a seed. Different seeds give different bytes in each group of eight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/wire/memory.h"

namespace plugfest::rank {

/// Writes the first `size` bytes of the pattern of `seed`.
void fill_pattern(void* memory, std::size_t size, std::uint64_t seed);

/// Compares with the bytes that fill_pattern writes.
Difference compare_pattern(const void* memory, std::size_t size, std::uint64_t seed);

/// Compares every byte with one value.
Difference compare_byte(const void* memory, std::size_t size, std::uint8_t value);

/// A pseudo-random number computed from `seed` and `index`; distinct for distinct `index`.
std::uint64_t mix(std::uint64_t seed, std::uint64_t index);

}  // namespace plugfest::rank
