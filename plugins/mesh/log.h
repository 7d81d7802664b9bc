// Lines for NCCL's log.
#pragma once

#include "harness/abi/base.h"

namespace mesh {

/// Takes the logger that init was given; the last one counts. Null: nothing is logged.
void set_logger(plugfest::abi::Logger logger);

/// One line, printf-style. Any thread, any time.
[[gnu::format(printf, 4, 5)]] void log_line(int level, const char* file, int line, const char* format, ...);

}  // namespace mesh

/// For what the user must know and act on.
#define MESH_WARN(...) ::mesh::log_line(::plugfest::abi::kLogWarn, __FILE_NAME__, __LINE__, __VA_ARGS__)
/// For what helps to understand a run.
#define MESH_INFO(...) ::mesh::log_line(::plugfest::abi::kLogInfo, __FILE_NAME__, __LINE__, __VA_ARGS__)
