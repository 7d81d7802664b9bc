// Where a thread of another process stands: its system call and its native frames.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace plugfest::control {

/// kWhole: all frames. kBelowSignal: only those that a signal handler interrupted.
enum class StackPart { kWhole, kBelowSignal };

/// Frames of thread `tid`, innermost first: "isend at mesh/send.cc:41 (libnccl-net-mesh.so)"; before them, if it waits
/// in the kernel, "in system call futex". Frames of a rank's own code below the plugin are left out. The process is
/// stopped for that moment, and must be a descendant of this one. Empty when nothing could be read; never throws.
std::vector<std::string> read_stack(pid_t pid, pid_t tid, StackPart part);

/// The id of the thread of `pid` with that name (cut to 15 characters); 0 when there is none.
pid_t thread_named(pid_t pid, std::string_view name);

}  // namespace plugfest::control
