// Which memory of this process a NIC could pin.
#pragma once

#include <cstddef>

namespace plugfest::roce {

/// Whether each page of the range is mapped and readable, and also writable if `write`. True as well if /proc/self/maps
/// cannot be read. Hardware pins the pages of a region and so refuses others with EFAULT (ib_umem_get in the kernel).
/// Populates the pages of short ranges. Thread safety: any thread; the answer holds until the program unmaps memory.
bool can_access(const void* address, std::size_t length, bool write);

}  // namespace plugfest::roce
