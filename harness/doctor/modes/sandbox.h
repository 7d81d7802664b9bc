// Tries to create emulated hosts.
#pragma once

#include "harness/doctor/trials.h"

namespace plugfest::doctor {

/// Creates a sandbox with two hosts and a link, and removes it. `netem`: also adds a netem queue.
SandboxTrial try_sandbox(bool netem);

}  // namespace plugfest::doctor
