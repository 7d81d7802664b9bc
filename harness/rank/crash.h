// Reports crashes to the controller.
#pragma once

namespace plugfest::rank {

/// Installs a handler of SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT that sends a `Crash` on `control_fd` and never
/// returns. The controller reads the stack of the thread and kills the process.
void report_crashes(int control_fd);

}  // namespace plugfest::rank
