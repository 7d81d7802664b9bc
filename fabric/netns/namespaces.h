// Namespaces of the kernel: creates, opens and enters them; mounts what a host's processes see of /sys and shared
// memory.
#pragma once

#include <string_view>

#include "fabric/system/file.h"

namespace plugfest::netns {

/// Opens a namespace of the calling thread. `kind`: a file name of /proc/self/ns, such as "net".
/// Errors: std::runtime_error.
Descriptor open_current_namespace(const char* kind);

/// Throws a std::runtime_error that says why unshare() has just refused a namespace. `kind`: "net" or "mnt".
[[noreturn]] void throw_no_namespace(const char* kind);

/// Whether a network namespace forwards packets between its interfaces.
enum class Forwarding { kNo, kYes };

/// Moves the calling thread into a new network namespace and returns it. Source address checks, IPv6 duplicate address
/// detection and router solicitations are off. Errors: std::runtime_error.
Descriptor create_network_namespace(Forwarding forwarding = Forwarding::kNo);

/// Moves the calling thread into a namespace. `kind`: CLONE_NEWNET or CLONE_NEWNS. Errors: std::runtime_error.
void enter_namespace(const Descriptor& fd, int kind);

/// Moves the calling thread to a new mount namespace in which /sys shows the thread's network namespace: its interfaces
/// in /sys/class/net, the machine's other classes, and an empty writable folder /sys/class/infiniband. The machine's
/// RDMA devices are hidden. /dev/shm, where the machine has it, is empty and belongs to this view.
///
/// Where sysfs cannot be mounted (containers that hide parts of it), /sys/class/net still shows the machine's
/// interfaces. The thread must not share its current folder with other threads (unshare(CLONE_FS)). Errors:
/// std::runtime_error.
void enter_host_view();

/// In the host view that the calling thread has entered, puts lines such as "10.0.0.1 a" at the start of
/// /etc/hosts, and removes all name servers from /etc/resolv.conf: no host reaches one, and a resolver that waits for
/// an answer delays programs by seconds. The machine's files are unchanged. Does nothing to a file that does not exist.
/// Errors: std::runtime_error.
void set_host_names(std::string_view lines);

}  // namespace plugfest::netns
