// Sends the calls of a CUDA runtime that is linked into a file to the stand-ins.
#pragma once

#include <map>
#include <string>

namespace plugfest::nccl {

/// `functions`: those of the runtime, loaded in this process, by name. Functions without a stand-in get a trap.
/// Errors: plugin::LoadError. No other thread may call the functions meanwhile.
void redirect_runtime(const std::map<std::string, void*>& functions);

}  // namespace plugfest::nccl
