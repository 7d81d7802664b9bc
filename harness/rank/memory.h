// Conversion of the protocol's pointers, and memory between inaccessible guard pages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/wire/process.h"

namespace plugfest::rank {

inline void* pointer(std::uint64_t number) { return reinterpret_cast<void*>(number); }
inline std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

/// Maps `size` zeroed bytes between two guard pages. `size` may be 0. `at_end`: the last byte lies before a guard page;
/// otherwise the first byte lies after one. Errors: std::system_error.
Mapping map_guarded(std::size_t size, bool at_end);

/// Unmaps a mapping of map_guarded with its guard pages.
void unmap_guarded(const Mapping& mapping);

/// As above. `pages`: the pages of the mapping (Mapping::pages_address, pages_size).
void unmap_guarded(Range pages);

std::size_t page_size();

}  // namespace plugfest::rank
