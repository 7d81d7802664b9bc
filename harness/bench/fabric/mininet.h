// Mininet on the same trees.
#pragma once

#include "harness/bench/fabric/tree.h"

namespace plugfest::bench {

/// Errors: std::runtime_error "bench fabric --mininet needs Mininet: run …" unless it is installed.
void require_mininet();

/// Builds a fat tree with Linux bridges for switches by Mininet's own means, and takes it down. Takes minutes for k
/// = 8. To be called inside a sandbox, which then removes what Mininet leaves. Errors: std::runtime_error with its
/// output.
UpAndDown measure_mininet(int k);

}  // namespace plugfest::bench
