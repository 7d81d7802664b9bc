// Executes plugin calls of one thread instruction by instruction, and lets other threads make whole calls in between.
// Races between calls thus show in each run, on any number of processors.
#pragma once

#include <atomic>
#include <cstdint>

namespace plugfest::rank {

/// While it exists, some calls that the calling thread makes with enter_plugin are stepped, up to a limit of
/// instructions. `seed` selects the calls, and the instructions before which another thread makes a call. If that call
/// waits, as for a lock of the plugin, the stepped call continues until the other one has returned.
///
/// At most one in a process. Without effect on processors other than x86-64, and if a debugger traces the process.
class Stepping {
 public:
  explicit Stepping(std::uint64_t seed);
  ~Stepping();
  Stepping(const Stepping&) = delete;
  Stepping& operator=(const Stepping&) = delete;
};

/// True while a Stepping exists. While it is true, each thread calls begin_call() before and end_call() after its
/// plugin calls.
inline std::atomic<bool> some_calls_are_stepped{false};
void begin_call(const char* function);
void end_call(const char* function);

}  // namespace plugfest::rank
