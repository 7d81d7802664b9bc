// State of a rank's threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "fabric/system/clock.h"
#include "harness/abi/base.h"
#include "harness/rank/calls/argument_area.h"

namespace plugfest::rank {

struct ThreadState {
  explicit ThreadState(std::string_view thread_name) : name(thread_name) {}

  const std::string name;
  /// Name of the plugin function that the thread runs, or null. The crash handler and other threads read it.
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

/// The plugin function that the thread with that name runs; "" for none.
std::string call_of_thread(std::string_view name);

/// Runs one plugin call on this thread. Sets code and times of `answer`, and `name` for crash reports. An exception of
/// the plugin ends the process, as it does in NCCL.
template <class Call>
std::int32_t enter_plugin(const char* name, CallAnswer& answer, Call&& call) noexcept {
  ThreadState& thread = this_thread();
  thread.call.store(name, std::memory_order_relaxed);
  answer.start_ns = now_ns();
  answer.code = static_cast<std::int32_t>(call());
  answer.end_ns = now_ns();
  if (answer.code < 0 || answer.code > static_cast<std::int32_t>(abi::Result::kRemoteError)) {
    thread.undefined_code = answer.code;
  }
  thread.call.store(nullptr, std::memory_order_relaxed);
  return answer.code;
}

/// Overwrites the unused part of the stack, so that a plugin that keeps a pointer to it reads wrong values.
void overwrite_dead_stack();

}  // namespace plugfest::rank
