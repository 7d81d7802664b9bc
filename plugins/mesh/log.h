// Errors, as a result code for NCCL and a line for its log, and the log itself.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

#include "harness/abi/base.h"

namespace mesh {

namespace abi = plugfest::abi;
using abi::Result;

/// An exception of the plugin, which net.cc turns into the result code and one WARN line. `what()` says what failed,
/// where, and what to do.
class Failure : public std::runtime_error {
 public:
  Failure(Result code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Result code() const { return code_; }

 private:
  Result code_;
};

inline std::string error_text(int error) { return std::generic_category().message(error); }

/// The failure of a system call or a verbs call: "cannot WHAT: No such device".
inline Failure system_failure(const std::string& what, int error = errno) {
  return {Result::kSystemError, "cannot " + what + ": " + error_text(error)};
}

/// Sets NCCL's logger for the process. Null: nothing is logged.
void set_logger(plugfest::abi::Logger logger);

/// Logs one line with a printf format. Thread-safe.
[[gnu::format(printf, 4, 5)]] void log_line(int level, const char* file, int line, const char* format, ...);

}  // namespace mesh

/// Logs an error that the user must act on.
#define MESH_WARN(...) ::mesh::log_line(::plugfest::abi::kLogWarn, __FILE_NAME__, __LINE__, __VA_ARGS__)
/// Logs information that helps to understand a run.
#define MESH_INFO(...) ::mesh::log_line(::plugfest::abi::kLogInfo, __FILE_NAME__, __LINE__, __VA_ARGS__)
