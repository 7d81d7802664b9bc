// Memory of a rank that a descriptor names, as a GPU's driver exports memory.
#pragma once

#include <cstddef>

#include "harness/control/one_sided.h"
#include "harness/control/rank.h"

namespace plugfest::control {

struct ExportedMemory {
  Memory memory;
  /// A descriptor in the rank. It stays open until replace_descriptor(), or until the rank ends.
  int descriptor = -1;
  /// False: the descriptor belongs to a memory file, which only plugfest's NIC registers as a DMA-BUF.
  bool is_dma_buf = false;
};

/// Allocates zeroed whole pages between guard pages. Errors: HarnessError.
ExportedMemory allocate_exported(const Rank& rank, std::size_t size);
/// Closes the descriptor, and gives its number to another file.
void replace_descriptor(const Rank& rank, int descriptor);

/// Registers memory of each rank with its descriptor. Errors: as OneSidedGroup::window().
Window register_exported(OneSidedGroup& group, const std::vector<ExportedMemory>& exported);

}  // namespace plugfest::control
