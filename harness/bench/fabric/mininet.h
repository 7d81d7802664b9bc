// Measures Mininet on the same trees.
#pragma once

#include "harness/bench/fabric/tree.h"

namespace plugfest::bench {

/// Checks that Mininet is installed. Errors: std::runtime_error "bench fabric --mininet needs Mininet: run …".
void require_mininet();

/// Builds and removes a fat tree with Mininet, with Linux bridges as switches. Takes minutes for k = 8. Call it inside
/// a sandbox, which removes everything that Mininet leaves behind. Errors: std::runtime_error with Mininet's output.
UpAndDown measure_mininet(int k);

}  // namespace plugfest::bench
