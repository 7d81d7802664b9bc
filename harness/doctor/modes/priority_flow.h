// Reads the priority flow control of an interface from its driver over netlink (IEEE 802.1Qaz, linux/dcbnl.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace plugfest::doctor {

/// One bit for each of the eight priorities: set if the priority is paused instead of dropped. std::nullopt if the
/// driver does not report it. Needs no privilege.
std::optional<std::uint8_t> paused_priorities(const std::string& interface);

/// Parses the attributes of the kernel's answer. Accepts any bytes.
std::optional<std::uint8_t> paused_priorities(std::span<const std::byte> attributes);

}  // namespace plugfest::doctor
