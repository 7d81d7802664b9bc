// Detects after a short time that a call hangs at a place at which another call has hung for the full time limit.
//
// Internal to this folder.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fabric/system/load_clock.h"

namespace plugfest::control {

/// The places in the plugin (place_in_plugin() in stack.h) at which calls of one session have hung.
/// Thread safety: any thread.
class HangPlaces {
 public:
  /// Places are known once this number of calls have hung for the full time limit, at any place.
  static constexpr int kHangs = 3;

  /// Records a call that hung for the full time limit, unless its place in `library` cannot be determined.
  void add(const std::vector<std::string>& stack, const std::string& library);
  bool any_known() const { return hangs_ >= kHangs; }
  bool knows(const std::string& place) const;

 private:
  mutable std::mutex mutex_;
  std::set<std::string> places_;
  std::atomic<int> hangs_ = 0;
};

/// Watches a thread of a rank while a call on it does not return. One thread.
class BlockedCall {
 public:
  /// `limit`: see Limits::blocked_seconds. `library`: the plugin's file.
  BlockedCall(HangPlaces& places, Nanoseconds limit, std::string library)
      : places_(places), limit_(limit), library_(std::move(library)) {}

  /// Whether call `id` on the thread hangs at a known place. Call it often while the call makes no progress. The thread
  /// must stay blocked in the kernel for the limit, without running at all. While other threads of the processes that
  /// `clock` watches run, it must stay blocked for several limits. The stack is then read once for each system call:
  /// this interrupts it, which some system calls report as EINTR.
  bool hangs(pid_t process, const std::string& thread, std::uint32_t id, LoadClock& clock);
  /// Records a call that hung for the full time limit. `stack`: see read_stack().
  void add_hang(const std::vector<std::string>& stack) { places_.add(stack, library_); }
  /// `wait`: whether calls may wait for a retransmission; if so, their limit is longer.
  void wait_for_retransmissions(bool wait) { retransmits_ = wait; }
  /// The stack and the number of the call for which `hangs` has returned true; see read_stack().
  const std::vector<std::string>& stack() const { return stack_; }
  bool is(std::uint32_t id) const { return hangs_ && id == id_; }
  Nanoseconds limit() const { return limit_; }
  /// How long that call was blocked.
  Nanoseconds waited() const { return waited_; }

 private:
  HangPlaces& places_;
  const Nanoseconds limit_;
  const std::string library_;
  std::uint32_t id_ = 0;  ///< the call that is watched; 0: none
  pid_t thread_ = 0;
  std::uint64_t thread_ran_ns_ = 0;
  Nanoseconds looked_ = 0;   ///< time of the clock at which the thread was last examined
  Nanoseconds since_ = 0;    ///< time of the clock since which the thread has not run
  Nanoseconds all_ran_ = 0;  ///< LoadClock::ran() at that time
  std::string examined_;     ///< the system call whose stack was read, with its arguments
  int unreadable_ = 0;       ///< stacks of this call that were read and show no place in the plugin
  bool hangs_ = false;
  Nanoseconds waited_ = 0;
  bool retransmits_ = false;
  std::vector<std::string> stack_;
};

}  // namespace plugfest::control
