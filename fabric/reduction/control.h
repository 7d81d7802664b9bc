// Serves the manager's TCP connections.
#pragma once

#include "fabric/reduction/manager.h"
#include "fabric/system/file.h"

namespace plugfest::reduction {

/// Makes the kernel close a connection whose peer does not answer: keep-alive probes after 1 s, and data that is not
/// acknowledged for 5 s.
void watch_peer(int socket);

/// Serves `manager` on a listening socket until the process ends. Sleeps while there is nothing to do. Errors:
/// std::runtime_error if the kernel gives no resources.
[[noreturn]] void serve(Manager& manager, Descriptor listener);

}  // namespace plugfest::reduction
