// SIGINT, SIGTERM and SIGHUP end a command early; it still writes its results.
#pragma once

#include <atomic>
#include <string>

namespace plugfest::cli {

/// Installs handlers: afterwards SIGINT, SIGTERM and SIGHUP only set the returned flag and make stop_fd() readable.
const std::atomic<bool>& stop_on_signals();
/// The descriptor for control::Limits::stop_fd; -1 before stop_on_signals().
int stop_fd();
/// The signal that arrived last; 0: none.
int stop_signal();
/// 128 plus the signal that arrived last; `exit_code` if none has arrived.
int exit_code_unless_stopped(int exit_code);

/// Makes SIGPIPE and SIGIO harmless, and this process inaccessible to plugins: they cannot write to /proc/PID/mem.
void protect_from_plugins();

/// Converts the exit code of the process in the sandbox into the command's, which waits outside. If another
/// signal has ended that process, reports the signal; the results are lost. `plugin`: its name in the message.
int explain_end(int exit_code, const std::string& plugin = "");

}  // namespace plugfest::cli
