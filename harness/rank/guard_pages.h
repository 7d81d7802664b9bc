// Memory between two pages that nobody may touch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/rank/protocol/protocol.h"

namespace plugfest::rank {

/// Maps `size` bytes (0 too) of zeroes between guard pages: `at_end`: the last byte before the guard page, else the
/// first behind one. Errors: std::system_error.
Mapping map_guarded(std::size_t size, bool at_end);

/// Unmaps such a mapping with its guard pages. `pages`: as in Mapping.
void unmap_guarded(Range pages);

std::size_t page_size();

}  // namespace plugfest::rank
