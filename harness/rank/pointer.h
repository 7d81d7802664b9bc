// Numbers of the protocol as pointers of this process, and back.
#pragma once

#include <cstdint>

namespace plugfest::rank {

inline void* pointer(std::uint64_t number) { return reinterpret_cast<void*>(number); }
inline std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace plugfest::rank
