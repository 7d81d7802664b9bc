// Random numbers from the kernel.
#pragma once

#include <cstdint>

namespace plugfest {

/// An unpredictable number, from getrandom(2). Thread safety: any thread. Errors: std::system_error.
std::uint32_t random_number();

}  // namespace plugfest
