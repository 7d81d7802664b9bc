// Switches of a network interface that ethtool knows.
#pragma once

#include <string>
#include <string_view>

namespace plugfest::netns {

/// Turns a feature such as "tx-udp-segmentation" on or off, for an interface of the calling thread's network namespace.
/// Errors: std::runtime_error if there is no such interface or feature, or if the interface does not let it change.
void set_feature(const std::string& interface, std::string_view feature, bool on);

}  // namespace plugfest::netns
