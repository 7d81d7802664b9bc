// Ends a run early on Ctrl-C, with partial results.
#pragma once

#include <atomic>

namespace plugfest::cli {

/// Installs handlers for SIGINT, SIGTERM and SIGHUP that set the returned flag and make stop_fd() readable.
const std::atomic<bool>& stop_on_signals();
/// A descriptor that becomes readable on one of these signals (control::Limits::stop_fd). stop() does not affect it.
int stop_fd();
/// Sets the flag without a signal.
void stop();
/// The last signal, or 0.
int stop_signal();

}  // namespace plugfest::cli
