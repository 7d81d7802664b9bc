// Reads the native stacks of threads of other processes.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace plugfest::control {

/// kWhole: all frames. kBelowSignal: only the frames that a signal handler interrupted.
enum class StackPart { kWhole, kBelowSignal };

/// Frames of thread `tid`, innermost first: "isend at mesh/send.cc:41 (libnccl-net-mesh.so)". With kWhole, a thread
/// that waits in the kernel has "in system call futex" before them. Omits frames of the rank that call the plugin. The
/// process must be a descendant of this one; the call stops it temporarily. Empty if the stack cannot be read. Never
/// throws.
std::vector<std::string> read_stack(pid_t pid, pid_t tid, StackPart part);

/// The id of the thread of `pid` with that name, compared by its first 15 characters; 0 when there is none.
pid_t thread_named(pid_t pid, std::string_view name);

/// The start of the first line of a stack whose thread waits in the kernel: "in system call futex".
inline constexpr std::string_view kInSystemCall = "in system call ";

/// The innermost location in the plugin of a stack (Hung::stack, Crashed::stack): "p.c:56". "" if no frame is in
/// `library`, the plugin's file.
std::string place_in_plugin(const std::vector<std::string>& stack, const std::string& library);

}  // namespace plugfest::control
