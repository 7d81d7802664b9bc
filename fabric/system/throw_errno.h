// Turns errno into an exception.
#pragma once

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace plugfest {

/// Throws std::runtime_error "WHAT: REASON" with the text of the current errno.
[[noreturn]] inline void throw_errno(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

}  // namespace plugfest
