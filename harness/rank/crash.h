// Tells the controller of a crash before the process ends.
#pragma once

namespace plugfest::rank {

/// Handles SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT from here on: the handler sends a `Crash` on `control_fd` and
/// then holds its thread where it is, so that the controller can read its stack and end the process.
void report_crashes(int control_fd);

}  // namespace plugfest::rank
