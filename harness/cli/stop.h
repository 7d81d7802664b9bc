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

}  // namespace plugfest::cli
