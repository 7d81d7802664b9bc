// What a host's processes see under /sys.
#pragma once

namespace plugfest::netns {

/// Gives the calling thread a mount namespace of its own, in which /sys shows the network namespace that the thread is
/// in: its interfaces under /sys/class/net, the machine's other classes, and an empty folder /sys/class/infiniband that
/// can be written to. Classes of RDMA devices that the machine itself has are hidden.
///
/// Where no sysfs can be mounted (containers that hide parts of it) /sys/class/net goes on showing the machine's
/// interfaces. The thread must not share its current directory with others (unshare(CLONE_FS)). Errors:
/// std::runtime_error.
void enter_host_view();

}  // namespace plugfest::netns
