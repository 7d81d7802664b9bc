// What the rank knows about one of its threads: its name, the plugin call it is in, its area for arguments.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "fabric/system/clock.h"
#include "harness/rank/calls/argument_area.h"

namespace plugfest::rank {

struct ThreadState {
  explicit ThreadState(std::string_view thread_name) : name(thread_name) {}

  const std::string name;
  /// Name of the plugin's function that runs now, or null. Read by the crash handler and by other threads.
  std::atomic<const char*> call{nullptr};
  ArgumentArea arguments;
  /// Tells the controller that the request that is being executed makes progress.
  std::function<void()> report_progress;
};

/// Sets up the calling thread: its state, its name in the kernel, its stack for signal handlers. Once per thread.
void adopt_thread(std::string_view name);

/// State of the calling thread; null on threads that are not the rank's own, such as the plugin's.
ThreadState* this_thread_or_null();
ThreadState& this_thread();

/// The plugin function in which a thread of that name is, or "".
std::string call_of_thread(std::string_view name);

/// Runs one plugin call on this thread, timed and named for reports. An exception of the plugin ends the process, as it
/// would in NCCL. Afterwards dead stack is overwritten, so that a pointer kept to an array there finds rubbish.
template <class Call>
std::int32_t enter_plugin(const char* name, CallAnswer& answer, Call&& call) noexcept {
  ThreadState& thread = this_thread();
  thread.call.store(name, std::memory_order_relaxed);
  answer.start_ns = now_ns();
  answer.code = static_cast<std::int32_t>(call());
  answer.end_ns = now_ns();
  thread.call.store(nullptr, std::memory_order_relaxed);
  return answer.code;
}

/// Overwrites what calls that have returned left on the stack.
void overwrite_dead_stack();

}  // namespace plugfest::rank
