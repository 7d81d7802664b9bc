// Reads the native stack of a thread of another process.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace plugfest::control {

/// kWhole: all frames. kBelowSignal: only the frames that a signal handler interrupted.
enum class StackPart { kWhole, kBelowSignal };

/// Frames of thread `tid`, innermost first: "isend at mesh/send.cc:41 (libnccl-net-mesh.so)". With kWhole, a thread
/// that waits in the kernel has "in system call futex" before them. Frames of the rank that call the plugin are left
/// out. The process must be a descendant of this one; it is stopped meanwhile. Empty when nothing could be read. Throws
/// nothing.
std::vector<std::string> read_stack(pid_t pid, pid_t tid, StackPart part);

/// The id of the thread of `pid` with that name, of which the first 15 characters count; 0 when there is none.
pid_t thread_named(pid_t pid, std::string_view name);

}  // namespace plugfest::control
