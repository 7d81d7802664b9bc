// Ends the process if it needs something that the emulation lacks, so that it does not continue with a wrong answer.
#pragma once

#include <string>

namespace plugfest::nccl {

/// First word of the line that refuse() prints.
inline constexpr const char* kRefusal = "plugfest-nccl: ";
/// Exit code of refuse().
inline constexpr int kRefusalCode = 2;

/// Prints `reason` on standard error as one line, and ends the process. Runs no destructors.
[[noreturn]] void refuse(const std::string& reason);

}  // namespace plugfest::nccl
