// Offload features of a network interface (ethtool).
#pragma once

#include <string>
#include <string_view>

namespace plugfest::netns {

/// Turns a feature such as "tx-udp-segmentation" on or off for an interface in the calling thread's network namespace.
/// Errors: std::runtime_error if the interface or feature does not exist or cannot be changed.
void set_feature(const std::string& interface, std::string_view feature, bool on);

}  // namespace plugfest::netns
