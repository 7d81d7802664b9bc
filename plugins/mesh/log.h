// Writes to NCCL's log.
#pragma once

#include "harness/abi/base.h"

namespace mesh {

/// Sets the logger of the process. Null: nothing is logged.
void set_logger(plugfest::abi::Logger logger);

/// Logs one line with a printf format. Thread-safe.
[[gnu::format(printf, 4, 5)]] void log_line(int level, const char* file, int line, const char* format, ...);

}  // namespace mesh

/// Logs an error that the user must act on.
#define MESH_WARN(...) ::mesh::log_line(::plugfest::abi::kLogWarn, __FILE_NAME__, __LINE__, __VA_ARGS__)
/// Logs information that helps to understand a run.
#define MESH_INFO(...) ::mesh::log_line(::plugfest::abi::kLogInfo, __FILE_NAME__, __LINE__, __VA_ARGS__)
