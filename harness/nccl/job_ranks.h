// The ranks of one NCCL job: processes in the hosts of a test bed, driven by commands.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "fabric/topology/graph.h"
#include "harness/bed/test_bed.h"
#include "harness/control/launcher.h"
#include "harness/nccl/commands.h"

namespace plugfest::nccl {

struct JobRanksOptions {
  /// The plugin for NCCL: the absolute path of a library, "nccl:IB" or "nccl:Socket".
  std::string plugin;
  /// Number of ranks; 0: one in each host.
  int ranks = 0;
  /// Time limit of a command. It is longer, up to five times, while the ranks have got less than half a processor:
  /// other programs then keep them from running.
  double seconds = 120;
  /// Ends a wait when it becomes readable; -1: none.
  int stop_fd = -1;
  /// Gives device memory two views: see cuda/memory.h.
  bool split_memory = false;
  /// Added to the environment of each rank; replaces existing variables.
  control::Environment environment = {};
};

/// The job failed: a call of NCCL returned an error, a rank ended or hangs. The text names the rank.
class JobFailed : public std::runtime_error {
 public:
  enum class Kind { kError, kNoAnswer, kEnded };
  JobFailed(Kind kind, int rank, const std::string& text) : std::runtime_error(text), kind_(kind), rank_(rank) {}
  Kind kind() const { return kind_; }
  int rank() const { return rank_; }

 private:
  Kind kind_;
  int rank_;
};

/// A signal to stop arrived.
struct Stopped {};

/// The first pair of NICs that NCCL connects (the n-th NICs of two hosts) but that do not reach each other, as in
/// "a.eth1 to b.eth1"; empty if there is none.
std::string unreached_nics(const topology::Graph& graph);

/// Advice for a failed job whose plugin had to route between unreached_nics(); empty if there are none.
std::string reach_hint(const topology::Graph& graph);

/// NCCL's IB connects the n-th NICs of two hosts. Errors: std::runtime_error if `plugin` is "nccl:IB" and some of them
/// do not reach each other.
void check_reach(const std::string& plugin, const topology::Graph& graph);

/// Thread safety: one thread. Destruction kills the ranks.
class JobRanks {
 public:
  /// Starts the processes and lets them load NCCL. Errors: std::runtime_error with the reason if NCCL cannot be used.
  JobRanks(bed::TestBed& bed, const JobRanksOptions& options);
  ~JobRanks();
  JobRanks(const JobRanks&) = delete;
  JobRanks& operator=(const JobRanks&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  std::vector<int> all_ranks() const;
  const std::string& host(int rank) const { return at(rank).host; }

  /// Creates the communicator `name` of `members`, or of all ranks. Errors: JobFailed, std::runtime_error, Stopped.
  void init(const std::string& name = "world", std::vector<int> members = {});
  /// Begins to create a communicator of all ranks. Each rank answers; Abort ends it.
  void try_init(const std::string& name);

  /// Sends a command to a rank. Does not wait.
  void send(int rank, const Command& command);
  /// Waits for the answer to the oldest command. Errors: JobFailed if the rank ends or exceeds the limit;
  /// std::runtime_error with the reason if the emulation lacks something; Stopped.
  Answer receive(int rank);
  /// Waits for the first of several ranks to answer. Returns the rank and its answer; see receive(). `seconds`: a limit
  /// instead of the options' limit.
  std::pair<int, Answer> receive_any(const std::vector<int>& ranks, std::optional<double> seconds = std::nullopt);
  /// Sends a command to all ranks and returns their answers. `accepted`: an ncclResult_t that all ranks may answer.
  /// Errors: as receive(), and JobFailed for the first answer that is another error; it does not wait for the others.
  std::vector<Answer> all(const Command& command, int accepted = 0);
  void kill(int rank);
  /// -1: it was killed or has ended.
  pid_t process(int rank) const { return at(rank).process; }

  /// NCCL's log and the output of the process so far.
  std::string log(int rank) const;
  /// NCCL's logs of all ranks.
  std::vector<std::string> logs() const;
  std::string output(int rank) const;

 private:
  struct Rank {
    std::string host;
    pid_t process = -1;
    std::unique_ptr<wire::Channel> control;
    Descriptor log, output;
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  void launch(bed::TestBed& bed, const JobRanksOptions& options);
  void send_init(const std::string& name, const std::vector<int>& members, bool can_be_aborted);
  /// Receives one answer of each rank to `command`. Returns them by rank. Errors: as all().
  std::vector<Answer> receive_all(std::vector<int> ranks, const std::string& command, int accepted = 0);
  [[noreturn]] void report_end(int rank);
  Nanoseconds cpu_time() const;
  /// Whether a limit of `seconds` is reached. `cpu`: the CPU time of all ranks.
  static bool expired(double seconds, Nanoseconds passed, Nanoseconds cpu);
  void require_ok(int rank, const Answer& answer, const std::string& command) const;

  const double seconds_;
  const int stop_fd_;
  std::vector<Rank> ranks_;
};

}  // namespace plugfest::nccl
