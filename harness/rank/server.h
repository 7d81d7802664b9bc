// The parts of a rank that main() starts: the threads that execute the controller's requests, one for each channel, the
// reports of crashes, and the protection of plugfest from the plugin.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "harness/rank/memory.h"
#include "harness/wire/channel.h"
#include "harness/wire/protocol.h"

namespace plugfest::rank {

/// Executes the requests of `channel` on the calling thread until the channel closes.
void serve_thread(Channel channel, const std::string& name);

/// Executes the requests of the control channel. Ends the process when the channel closes.
[[noreturn]] void serve_control(Channel channel);

/// One function for each request of PLUGFEST_REQUESTS. It runs on the thread that received the request, returns the
/// answer, and throws for failures of the harness; only Load throws plugin::LoadError.
#define PLUGFEST_EXECUTE(request, answer, thread) answer execute(const request&);
PLUGFEST_REQUESTS(PLUGFEST_EXECUTE)
#undef PLUGFEST_EXECUTE

/// Makes `Exit` possible. Call it before a plugin is loaded.
void prepare_exit();

/// Installs a handler of SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT and SIGSYS that sends a `Crash` on `control_fd` and
/// never returns. The controller reads the stack of the thread and kills the process. SIGPIPE does nothing, or is such
/// a crash if the variable PLUGFEST_RANK_SIGPIPE is set.
void report_crashes(int control_fd);

/// Installs these handlers, except SIGPIPE's, again. Libraries that a plugin loads, such as libpsm2, replace them
/// with their own, which end the process without a report. Handlers of plugfest's NIC stay. Needs an earlier
/// report_crashes().
void keep_reporting_crashes();

/// Reports on kLogFd the names of the variables that are set and that the plugin reads from now on, each once.
void report_variables();

/// For a function of this program that replaces one of libc: returns libc's, and keeps it in `known`. Allocates
/// nothing.
template <typename Function>
Function* replaced_function(std::atomic<Function*>& known, const char* name) {
  Function* function = known.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
    known.store(function, std::memory_order_relaxed);
  }
  return function;
}

/// Makes the kernel refuse some calls of this process and its descendants with SIGSYS: reboot(), and calls that act on
/// a protected process, that is, send a signal to it, trace it, write to it, limit it, or make it the owner of a
/// descriptor's signals (F_SETOWN). Protected are:
///  - all processes (kill(-1, …)),
///  - the ancestors of this process and their process groups: plugfest and its ancestors,
///  - processes with an id below 300 that are older than this one, such as the keeper of a background fabric.
/// This process cannot send SIGKILL or SIGSTOP to itself, either. Call the function while the process has one thread.
/// It has no effect on kernels without seccomp filters.
///
/// It protects against mistakes, not against attacks: a plugin can send a signal to a single thread of plugfest.
void protect_plugfest();

/// Decodes a request, executes it and encodes the answer. Errors: as the operation; WireError for an unknown
/// operation and for bytes that are not a valid request.
std::vector<std::byte> execute(Operation operation, std::span<const std::byte> body);

}  // namespace plugfest::rank
