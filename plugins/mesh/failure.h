// What went wrong while a connection, a listener or a registration was made: a result code and a line for the log.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

#include "harness/abi/base.h"

namespace mesh {

namespace abi = plugfest::abi;
using abi::Result;

/// Thrown inside, turned into its code and one WARN line at the ABI's edge. `what()` says what, where, what to do.
class Failure : public std::runtime_error {
 public:
  Failure(Result code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Result code() const { return code_; }

 private:
  Result code_;
};

/// The system's words for an error number.
inline std::string error_text(int error) { return std::generic_category().message(error); }

/// A call of the system or of verbs failed with `error`: "cannot WHAT: no such device".
inline Failure system_failure(const std::string& what, int error = errno) {
  return {Result::kSystemError, "cannot " + what + ": " + error_text(error)};
}

}  // namespace mesh
