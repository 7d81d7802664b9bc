// Ends a process whose kernel, or whose plugin, does what a GPU does not permit.
#pragma once

#include <string>

namespace plugfest::kernels {

/// First words of the line about such a fault.
inline constexpr const char* kFault = "plugfest-nccl fault: ";
/// Part of the line if the kernel hangs: it then names what each thread waits for.
inline constexpr const char* kHangs = " hangs: ";
/// Exit code of a process with such a fault.
inline constexpr int kFaultCode = 1;

/// Prints kFault and `reason` on standard error in one write, and ends the process. `details`: lines that follow; "" or
/// ended by a newline. If several threads call it, the first one prints. Runs no destructors.
[[noreturn]] void end_with_fault(const std::string& reason, const std::string& details = "");

}  // namespace plugfest::kernels
