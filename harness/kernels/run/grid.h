// A running kernel: its blocks, each on a thread of the operating system, and whether it makes progress.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>

#include "harness/kernels/run/block.h"

namespace plugfest::kernels {

/// Environment variables.
inline constexpr const char* kSeedVariable = "PLUGFEST_KERNEL_SEED";
inline constexpr const char* kWeakVariable = "PLUGFEST_KERNEL_WEAK";
inline constexpr const char* kTimeoutVariable = "PLUGFEST_KERNEL_TIMEOUT";
inline constexpr const char* kPeersVariable = "PLUGFEST_KERNEL_PEERS";

/// How kernels run; the environment of the process decides.
struct Settings {
  /// Seeds the random order of the threads of a block; nullopt: they run in turn. Variable: kSeedVariable.
  std::optional<std::uint64_t> seed;
  /// Whether stores to shared memory become visible late and in any order. Variable: kWeakVariable, "1".
  bool weak = false;
  /// A kernel that makes no progress for this time hangs. Variable: kTimeoutVariable, in seconds.
  std::chrono::milliseconds limit{30'000};
  /// A descriptor that becomes readable, or hangs up, when another rank has failed: a kernel without progress then ends
  /// soon. nullopt: failures are unknown. Variable: kPeersVariable.
  std::optional<int> peers;

  /// Throws std::invalid_argument if a variable is not a number.
  static Settings from_environment();
  /// Whether kWeakVariable is "1".
  static bool is_weak();
};

/// Thread safety: any thread of the kernel.
class Grid {
 public:
  Grid(const Launch& launch, const Settings& settings);

  /// 0, or 9 (cudaErrorInvalidConfiguration) for a launch that no GPU runs.
  static int check(const Launch& launch);

  /// Runs all blocks, and returns when they have ended. Throws std::system_error without memory or threads.
  void run();

  const Launch& launch() const { return launch_; }

  /// Call it when a thread has got what it waited for.
  void note_progress();

  /// Ends the process if no block has made progress for the limit, or for a second if another rank has failed. A block
  /// whose threads all wait calls it.
  void end_if_hanging();
  /// Ends the process: no thread of `block` can ever continue.
  [[noreturn]] void end_with_deadlock(const Block& block);

  /// Counts the blocks whose threads all wait.
  void note_idle(bool idle) { idle_ += idle ? 1 : -1; }

 private:
  bool peer_has_failed();
  void run_blocks(const std::vector<std::byte*>& stacks);
  [[noreturn]] void end(const std::string& reason, const std::set<const Block*>& blocks) const;

  const Launch& launch_;
  const Settings& settings_;
  const unsigned blocks_;
  std::atomic<unsigned> next_ = 0;
  std::atomic<int> idle_ = 0;
  std::mutex mutex_;
  std::set<const Block*> running_;  ///< under mutex_
  std::atomic<std::chrono::steady_clock::rep> progress_;
  std::atomic<std::chrono::steady_clock::rep> peers_seen_ = 0;
};

}  // namespace plugfest::kernels
