// --loader nccl: NCCL itself says which version of a plugin it takes, and whether that one starts.
#pragma once

#include <string>

#include "conformance/rules/ground.h"
#include "harness/cli/options/subject.h"
#include "harness/report/document.h"

namespace plugfest::cli {

/// Asks NCCL in a fresh process in a host of `ground`, with the environment that ranks get there; `seconds` is how long
/// it may take. Errors: std::runtime_error when there is no NCCL to ask, or not the known one.
report::Loader ask_nccl(conformance::Ground& ground, const Plugin& plugin, double seconds);

}  // namespace plugfest::cli
