// When the kernel has done what it does after its answer: carriers and link-local addresses come in its own time.
#pragma once

#include <string>

namespace plugfest::netns {

/// Whether an interface of the calling thread's network namespace is there and set up by the administrator.
bool is_interface_up(const std::string& interface);

/// Returns when an interface of the calling thread's network namespace, both ends of which are up, can send: until then
/// its packets are dropped, routes over it are marked as dead, and programs that list interfaces may leave it out.
/// False if no carrier came within 5 seconds. Errors: std::runtime_error if there is no such interface.
bool await_carrier(const std::string& interface);

/// The same. Errors: std::runtime_error with `node` also when none came.
void require_carrier(const std::string& node, const std::string& interface);

/// Returns when an interface that has its carrier has its IPv6 link-local address too, so that the table of GIDs is
/// whole when the first program reads it. False if none came within a second; true at once where none is due (no IPv6,
/// or a search for duplicates, which alone takes a second).
bool await_link_local_address(const std::string& interface);

}  // namespace plugfest::netns
