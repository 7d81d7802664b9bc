// --trace of `plugfest nccl` and `nccl exec`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "fabric/system/scratch_folder.h"
#include "fabric/topology/graph.h"
#include "harness/cli/traffic/shared.h"
#include "harness/control/launcher.h"
#include "harness/report/output_file.h"

namespace plugfest::cli {

/// Lets the ranks of a job load libnccl-profiler-plugfest.so, and joins their recordings. Does nothing if the user
/// asked for no trace.
class JobTrace {
 public:
  /// Errors: std::runtime_error if the file of --trace cannot be written, or the plugin was not built.
  explicit JobTrace(const JobOptions& options);

  /// Makes the folder for the recordings, and adds the variables of the ranks to `environment`. Errors:
  /// std::runtime_error.
  void start(control::Environment& environment);
  /// Writes the file, when all ranks have closed their communicators. Prints a line on standard error if a rank left
  /// no recording. Errors: std::runtime_error.
  void write(std::size_t ranks, const topology::Graph& graph);

 private:
  std::string packets() const { return *folder_ / "packets.pcapng"; }

  const bool wants_packets_;
  std::string library_;
  std::optional<ScratchFolder> folder_;  ///< for the recordings
  std::unique_ptr<report::OutputFile> file_;
};

}  // namespace plugfest::cli
