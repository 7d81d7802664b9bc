// Ctrl-C and its like: the run ends early, with what it has.
#pragma once

#include <atomic>

namespace plugfest::cli {

/// From now on SIGINT, SIGTERM and SIGHUP set this flag and make `stop_fd` readable, and do nothing else.
const std::atomic<bool>& stop_on_signals();
/// For control::Limits. Not readable for stop().
int stop_fd();
/// Sets the flag without a signal.
void stop();
/// The signal that came, or 0.
int stop_signal();

}  // namespace plugfest::cli
