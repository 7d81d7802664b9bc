// Serves the manager's TCP connections.
#pragma once

#include "fabric/reduction/manager.h"
#include "fabric/system/file.h"

namespace plugfest::reduction {

/// Serves `manager` on a listening socket until the process ends. Sleeps while there is nothing to do. Errors:
/// std::runtime_error if the kernel gives no resources.
[[noreturn]] void serve(Manager& manager, Descriptor listener);

}  // namespace plugfest::reduction
