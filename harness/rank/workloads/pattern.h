// Contents of messages: bytes that follow from a seed, different in every eight bytes for different seeds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/rank/protocol/protocol.h"

namespace plugfest::rank {

/// Writes the first `size` bytes of the pattern of `seed`.
void fill_pattern(void* memory, std::size_t size, std::uint64_t seed);

/// Compares with what fill_pattern writes.
Difference compare_pattern(const void* memory, std::size_t size, std::uint64_t seed);

/// Compares every byte with one value.
Difference compare_byte(const void* memory, std::size_t size, std::uint8_t value);

/// A number that looks random and is fixed by its two inputs; distinct for distinct `index`.
std::uint64_t mix(std::uint64_t seed, std::uint64_t index);

}  // namespace plugfest::rank
