// The view that a host's processes have of /sys and of shared memory.
#pragma once

#include <string_view>

namespace plugfest::netns {

/// Moves the calling thread to a new mount namespace in which /sys shows the thread's network namespace: its interfaces
/// in /sys/class/net, the machine's other classes, and an empty writable folder /sys/class/infiniband. The machine's
/// RDMA devices are hidden. /dev/shm, where the machine has it, is empty and belongs to this view.
///
/// Where sysfs cannot be mounted (containers that hide parts of it), /sys/class/net still shows the machine's
/// interfaces. The thread must not share its current folder with other threads (unshare(CLONE_FS)). Errors:
/// std::runtime_error.
void enter_host_view();

/// In the host view that the calling thread has entered, adds a line such as "10.0.0.1 a" to /etc/hosts, so that a host
/// can resolve its own name. The machine's file is unchanged. Does nothing if it does not exist. Errors:
/// std::runtime_error.
void add_to_hosts_file(std::string_view line);

}  // namespace plugfest::netns
