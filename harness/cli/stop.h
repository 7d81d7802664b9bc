// Ctrl-C and its like: the run ends early, with what it has.
#pragma once

#include <atomic>

namespace plugfest::cli {

/// From now on SIGINT, SIGTERM and SIGHUP set this flag and do nothing else.
const std::atomic<bool>& stop_on_signals();
/// Sets the flag without a signal.
void stop();
/// The signal that came, or 0.
int stop_signal();

}  // namespace plugfest::cli
