// Functions that name the one they stand for and end the process.
#pragma once

#include <string>

namespace plugfest::nccl {

/// Returns a function that, when called, prints "NAME: no stand-in for this function of CUDA" and exits: see refuse().
/// It exists until the process ends. Null on an architecture whose machine code is unknown. Thread safety: any thread.
void* make_trap(const std::string& name);

}  // namespace plugfest::nccl
