// Records the isend, irecv and test calls of a net plugin in the process.
#pragma once

#include <cstdint>

namespace plugfest::trace {

/// Returns a copy of a net plugin's table whose isend, irecv and test are recorded. `symbol`: "ncclNetPlugin_v11", for
/// v6 to v12. Returns `table` for other symbols, and for a second table of a version. Not thread-safe: NCCL loads
/// plugins one after the other.
void* record_calls(const char* symbol, void* table) noexcept;

/// NCCL's proxy has got a request for the step from the last isend or irecv of this thread.
void on_posted(std::uint64_t step) noexcept;

}  // namespace plugfest::trace
