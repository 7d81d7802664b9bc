// Address ranges of cuMemAddressReserve, and what is mapped in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "harness/nccl/cuda/memory.h"

namespace plugfest::nccl::cuda {

/// The mapping of memory, not of a multicast object, that contains `address`. Thread safety: any thread.
std::optional<Allocation> mapping_of(const void* address);

/// Whether `address` is in a range of cuMemAddressReserve. Thread safety: any thread.
bool is_reserved(const void* address);

/// What is wrong with an access to `address`, a reserved one: "an ordinary instruction used a multicast address".
std::string fault_of_reserved(const void* address);

}  // namespace plugfest::nccl::cuda
