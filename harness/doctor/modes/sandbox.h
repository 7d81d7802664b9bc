// Tries what every run on emulated hosts begins with.
#pragma once

#include "harness/doctor/trials.h"

namespace plugfest::doctor {

/// Makes a sandbox, two hosts and a link in it, and removes all of it. `netem`: also gives that queue to an interface.
SandboxTrial try_sandbox(bool netem);

}  // namespace plugfest::doctor
