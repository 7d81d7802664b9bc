// What `plugfest nccl` and `plugfest nccl exec` share.
#pragma once

#include <cstddef>
#include <string>

#include "harness/cli/command.h"
#include "harness/cli/subject.h"

namespace plugfest::cli {

void add_nccl_exec(Command nccl);

/// The plugin, hosts and ranks of a job.
struct JobSelection {
  std::string plugin;
  std::string topology = "triangle";
  int ranks = 0;  ///< 0: one in each host
};

/// Adds --plugin, --topology and --ranks.
void add_job(Command command, JobSelection& job);

/// Adds --device-memory.
void add_device_memory(Command command, std::string& value);
/// Whether `value`, of --device-memory, asks for two views. Errors: std::runtime_error for unknown values.
bool wants_split_memory(const std::string& value);

/// Prints the end of a rank's log on standard error.
void print_log(std::size_t rank, const std::string& host, const std::string& log);

/// Writes a rank's log to rank-N.log in `folder`; nothing if `folder` is empty. Errors: std::runtime_error.
void write_log(const std::string& folder, std::size_t rank, const std::string& log);

}  // namespace plugfest::cli
