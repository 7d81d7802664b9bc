// Priority flow control of an interface, as its driver tells over netlink (IEEE 802.1Qaz, linux/dcbnl.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace plugfest::doctor {

/// A bit for each of the eight priorities that are paused instead of dropped; nothing where the driver does not say.
/// Needs no privilege.
std::optional<std::uint8_t> paused_priorities(const std::string& interface);

/// The same from the attributes of the kernel's answer. Any content is safe.
std::optional<std::uint8_t> paused_priorities(std::span<const std::byte> attributes);

}  // namespace plugfest::doctor
