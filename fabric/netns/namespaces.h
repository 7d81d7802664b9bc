// Creates, opens and enters namespaces of the kernel.
#pragma once

#include "fabric/system/descriptor.h"

namespace plugfest::netns {

/// Opens a namespace of the calling thread. `kind`: a file name of /proc/self/ns, such as "net".
/// Errors: std::runtime_error.
Descriptor open_current_namespace(const char* kind);

/// Throws why unshare() has just refused a namespace of that kind, "net" or "mnt". Errors: std::runtime_error, always.
[[noreturn]] void throw_no_namespace(const char* kind);

/// Whether a network namespace forwards packets between its interfaces.
enum class Forwarding { kNo, kYes };

/// Moves the calling thread into a new network namespace and returns it. Source address checks, IPv6 duplicate address
/// detection and router solicitations are off. Errors: std::runtime_error.
Descriptor create_network_namespace(Forwarding forwarding = Forwarding::kNo);

/// Moves the calling thread into a namespace. `kind`: CLONE_NEWNET or CLONE_NEWNS. Errors: std::runtime_error.
void enter_namespace(const Descriptor& fd, int kind);

}  // namespace plugfest::netns
