// Sets the offload features of network interfaces, and waits until interfaces are ready.
#pragma once

#include <string>
#include <string_view>

namespace plugfest::netns {

/// Turns a feature such as "tx-udp-segmentation" on or off for an interface in the calling thread's network namespace.
/// Errors: std::runtime_error if the interface or feature does not exist or cannot be changed.
void set_feature(const std::string& interface, std::string_view feature, bool on);

/// Whether an interface exists in the calling thread's network namespace and is set up (IFF_UP).
bool is_interface_up(const std::string& interface);

/// Waits until an interface in the calling thread's network namespace has carrier. Both ends of its link must be up.
/// Without carrier the kernel drops packets and marks routes as dead, and some programs do not list the interface.
/// Returns false after 5 seconds without carrier. Errors: std::runtime_error if the interface does not exist.
bool await_carrier(const std::string& interface);

/// Waits like await_carrier(). Errors: std::runtime_error that names `node`, for example after 5 s without carrier.
void require_carrier(const std::string& node, const std::string& interface);

/// Waits until an interface with carrier has its IPv6 link-local address, so that the GID table is complete for the
/// first program that reads it. Returns false after one second without address. Returns true without waiting if IPv6 is
/// disabled or duplicate address detection is enabled, which alone takes a second.
bool await_link_local_address(const std::string& interface);

}  // namespace plugfest::netns
