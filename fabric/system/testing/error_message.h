// The message of an expected error.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

namespace plugfest {

/// Calls `action`. Returns the message of the std::runtime_error that it throws, or "no error".
inline std::string error_message(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace plugfest
