// Converts between pointers and the numbers that stand for them in the protocol.
#pragma once

#include <cstdint>

namespace plugfest::rank {

inline void* pointer(std::uint64_t number) { return reinterpret_cast<void*>(number); }
inline std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace plugfest::rank
