// The threads of a rank: their state, memory for arguments of plugin calls, and time limits of loops.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/load_clock.h"
#include "harness/abi/base.h"
#include "harness/rank/memory.h"
#include "harness/rank/stepping.h"

namespace plugfest::rank {

/// Memory for the outputs and the array arguments of one plugin call at a time, with canaries around each. One thread.
///
/// NCCL keeps such arrays on its stack. This class overwrites them after the call, so that a plugin that keeps a
/// pointer to one reads wrong values (XF-14).
class ArgumentArea {
 public:
  ArgumentArea();
  ~ArgumentArea();
  ArgumentArea(const ArgumentArea&) = delete;
  ArgumentArea& operator=(const ArgumentArea&) = delete;

  /// Starts the next call: frees the arguments of the previous one.
  void begin();

  /// Copies an array that the plugin must not change. `name`: a string literal, for messages.
  void* input(std::string_view name, std::span<const std::byte> bytes, std::size_t item_size) {
    return add(name, bytes, item_size, true);
  }
  /// An output that holds `items` before the call.
  template <typename T>
  T* output(std::string_view name, std::span<const T> items) {
    return reinterpret_cast<T*>(add(name, std::as_bytes(items), sizeof(T), false));
  }
  template <typename T>
  T* output(std::string_view name, const T& item) {
    return output(name, std::span<const T>(&item, 1));
  }
  /// The int that all outputs with Parameter::lasting are.
  int* lasting_output(std::string_view name, int value);
  /// A copy of a handle that ends at a guard page: a write past its end crashes.
  std::byte* handle(std::span<const std::byte, 128> bytes);

  /// Call it after the plugin call: sets `damage` and `changes`, then overwrites all inputs. Outputs are valid until
  /// `begin`.
  void finish(CallAnswer& answer);

 private:
  struct Item {
    std::string_view name;
    std::byte* at;
    std::size_t item_size;
    /// Contents before the call; empty for outputs.
    std::vector<std::byte> before;
    std::size_t size;
  };

  void* add(std::string_view name, std::span<const std::byte> bytes, std::size_t item_size, bool input);

  Mapping memory_;
  Mapping handle_memory_;
  std::byte* next_;
  std::vector<Item> items_;
  bool handle_used_ = false;
};

/// Contents of canaries and of overwritten inputs.
inline constexpr std::uint8_t kCanary = 0xc5;
inline constexpr std::uint8_t kOverwritten = 0xd7;
inline constexpr std::size_t kCanarySize = 64;

struct ThreadState {
  explicit ThreadState(std::string_view thread_name) : name(thread_name) {}

  const std::string name;
  /// Name of the plugin function that the thread executes, or null. The crash handler and other threads read it.
  std::atomic<const char*> call{nullptr};
  ArgumentArea arguments;
  /// A result other than 0 to 6 that a call returned during the current request; 0: none.
  std::int32_t undefined_code = 0;
  /// Tells the controller that the current request makes progress.
  std::function<void()> report_progress;
};

/// Sets up the calling thread: its state, its name in the kernel, its stack for signal handlers. Call it once per
/// thread.
void adopt_thread(std::string_view name);

/// State of the calling thread; null on threads of the plugin.
ThreadState* this_thread_or_null();
ThreadState& this_thread();

/// The plugin function that the thread with that name executes; "" for none.
std::string call_of_thread(std::string_view name);

/// Runs one plugin call on this thread. Sets code and times of `answer`, and `name` for crash reports. An exception of
/// the plugin ends the process, as it does in NCCL.
template <typename Call>
std::int32_t enter_plugin(const char* name, CallAnswer& answer, Call&& call) noexcept {
  ThreadState& thread = this_thread();
  const bool may_be_stepped = some_calls_are_stepped.load(std::memory_order_relaxed);
  thread.call.store(name, std::memory_order_relaxed);
  answer.start_ns = now_ns();
  if (may_be_stepped) begin_call(name);
  answer.code = static_cast<std::int32_t>(call());
  if (may_be_stepped) end_call(name);
  answer.end_ns = now_ns();
  if (answer.code < 0 || answer.code > static_cast<std::int32_t>(abi::Result::kRemoteError))
    thread.undefined_code = answer.code;
  thread.call.store(nullptr, std::memory_order_relaxed);
  return answer.code;
}

/// Overwrites the unused part of the stack, so that a plugin that keeps a pointer to it reads wrong values.
void overwrite_dead_stack();

/// Ends loops of plugin calls that make no progress. Call `expired()` once in each turn without progress, and
/// `restart()` after each other turn. Both report to the controller from time to time that the loop runs, so that only
/// a plugin call that does not return counts as hung. `expired()` also yields the processor. One thread, a thread of
/// the rank.
class StallTimer {
 public:
  explicit StallTimer(std::int64_t timeout_ns) : timeout_ns_(timeout_ns), told_ns_(now_ns()) {}

  /// Call it when the loop has made progress.
  void restart() {
    turns_ = 0;
    since_ns_ = kNever;
    tell(now_ns());
  }

  /// True when the loop has made no progress for the whole timeout. Time in which the thread waits for a processor does
  /// not count (LoadClock).
  bool expired() {
    // Reads the clock in every 16th turn.
    if (++turns_ % 16 != 0) return false;
    sched_yield();
    tell(now_ns());
    const std::int64_t now = clock_.now();
    if (since_ns_ == kNever) since_ns_ = now;
    return now - since_ns_ > timeout_ns_;
  }

 private:
  void tell(std::int64_t now) {
    if (now - told_ns_ < timeout_ns_ / 8) return;
    told_ns_ = now;
    this_thread().report_progress();
  }

  const std::int64_t timeout_ns_;
  LoadClock clock_{LoadClock::Own::kThread};
  /// Start of the limit in the time of `clock_`. kNever: the next read of the clock sets it.
  std::int64_t since_ns_ = kNever;
  std::int64_t told_ns_;
  std::uint64_t turns_ = 0;
};

}  // namespace plugfest::rank
