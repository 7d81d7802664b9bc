// Runs a program once for each rank of an NCCL job, and passes its output on line by line.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/bed/test_bed.h"
#include "harness/control/launcher.h"
#include "harness/nccl/rank_environment.h"

namespace plugfest::nccl {

/// Cuts a stream of bytes into lines.
class LineSplitter {
 public:
  /// Longer lines are cut.
  static constexpr std::size_t kMaxLine = std::size_t{64} << 10;

  /// `line` gets each line without its line break.
  explicit LineSplitter(std::function<void(std::string_view)> line) : line_(std::move(line)) {}

  void add(std::string_view bytes);
  /// Ends a last line without line break.
  void finish();

 private:
  std::function<void(std::string_view)> line_;
  std::string part_;
};

struct ProgramOptions {
  /// The program and its arguments; a name without a slash is searched in PATH.
  std::vector<std::string> argv;
  /// The plugin for NCCL: the absolute path of a library, "nccl:IB" or "nccl:Socket".
  std::string plugin;
  /// The library that the ranks load, an absolute path. Empty with `gpu`: the program's own.
  std::string nccl;
  /// Number of ranks; 0: `ranks_per_host` in each host.
  int ranks = 0;
  int ranks_per_host = 1;
  /// Time limit of the whole job.
  double seconds = 300;
  /// Ends the job when it becomes readable; -1: none.
  int stop_fd = -1;
  /// Gives device memory two views: see cuda/memory.h.
  bool split_memory = false;
  DeviceApi device_api = DeviceApi::kNone;
  /// Kernels of the program: see kernels::Settings.
  bool weak_kernels = false;
  std::optional<std::uint64_t> kernel_seed;
  /// No stand-ins: the machine's GPUs, its CUDA and its NCCL.
  bool gpu = false;
  /// Added to the environment of each rank; replaces existing variables.
  control::Environment environment = {};
  /// Gets each line that a rank writes. `error`: whether the line went to standard error.
  std::function<void(int rank, bool error, std::string_view line)> line;
};

struct ProgramRank {
  std::string host;
  /// How the rank failed: "rank 1 on b ended with code 3"; empty if it ended with code 0.
  std::string failure;
  /// `failure` names its cause, or the ranks that waited for this one, so that NCCL's log adds nothing.
  bool explained = false;
  /// NCCL's log.
  std::string log;
};

struct ProgramResult {
  /// 0: all ranks ended with 0. 1: one did not. 2: one needs something that the emulation lacks.
  int exit_code = 0;
  /// A signal to stop arrived; the ranks were killed.
  bool stopped = false;
  std::vector<ProgramRank> ranks;
};

/// Starts the ranks and waits until all have ended, and with them the processes of their process groups. A few seconds
/// after a rank has failed, those that still run are killed. If that rank was killed, or its kernel broke a rule, its
/// `failure` names the ranks whose kernels waited then; these have no `failure` of their own. Errors:
/// std::runtime_error if a rank cannot be started.
ProgramResult run_program(bed::TestBed& bed, const ProgramOptions& options);

}  // namespace plugfest::nccl
