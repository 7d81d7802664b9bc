// Requests about memory that a descriptor names, as a GPU's driver exports memory.
#pragma once

#include <cstdint>

#include "harness/wire/process.h"

namespace plugfest::wire {

/// Maps whole pages between guard pages, and opens a descriptor that names them.
struct MapExported {
  std::uint64_t size = 0;
  PLUGFEST_FIELDS(size)
};
struct ExportedMapping : Mapping {
  /// A DMA-BUF, or a memory file on hosts without /dev/udmabuf.
  std::int32_t descriptor = -1;
  bool is_dma_buf = false;
  PLUGFEST_FIELDS_AFTER(Mapping, descriptor, is_dma_buf)
};

/// Closes a descriptor, and opens /dev/null with its number: a later use reaches that file.
struct ReplaceDescriptor {
  std::int32_t descriptor = -1;
  PLUGFEST_FIELDS(descriptor)
};

}  // namespace plugfest::wire
