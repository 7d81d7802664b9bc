// Numbers that nobody can guess.
#pragma once

#include <cstdint>

namespace plugfest::roce {

/// From the kernel. Thread safety: any thread. Errors: std::system_error.
std::uint32_t random_number();

}  // namespace plugfest::roce
