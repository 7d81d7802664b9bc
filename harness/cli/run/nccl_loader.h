// --loader nccl: asks NCCL itself which version of a plugin it selects, and whether that version starts.
#pragma once

#include "harness/bed/test_bed.h"
#include "harness/cli/options/subject.h"
#include "harness/report/document.h"

namespace plugfest::cli {

/// Runs NCCL's loader in a fresh process on `bed`, with the environment of ranks. `seconds`: time limit. Errors:
/// std::runtime_error if there is no NCCL, or an unsupported version.
report::Loader ask_nccl(bed::TestBed& bed, const Plugin& plugin, double seconds);

}  // namespace plugfest::cli
