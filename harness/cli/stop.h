// SIGINT, SIGTERM and SIGHUP end a command early; it still writes its results.
#pragma once

#include <atomic>

namespace plugfest::cli {

/// Installs handlers: from now on SIGINT, SIGTERM and SIGHUP only set the returned flag and make stop_fd() readable.
const std::atomic<bool>& stop_on_signals();
/// For control::Limits::stop_fd; -1 before stop_on_signals().
int stop_fd();
/// The signal that arrived last; 0: none.
int stop_signal();

/// For a command that waits outside of a sandbox: the exit code of the command, for that of the process inside. If a
/// signal other than the three has ended that process, prints what is known; its results are lost.
int explain_end(int exit_code);

}  // namespace plugfest::cli
