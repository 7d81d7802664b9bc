// Explicit congestion notification: the two low bits of an IP packet's traffic class.
// Source: RFC 3168.
#pragma once

#include <cstdint>

namespace plugfest::roce {

inline constexpr std::uint8_t kEcnMask = 3;
inline constexpr std::uint8_t kEcnCapable = 2;  ///< ECT(0): switches may mark the packet instead of dropping it
inline constexpr std::uint8_t kCongestionExperienced = 3;  ///< a switch has marked the packet

inline std::uint8_t ecn_capable(std::uint8_t traffic_class) {
  return static_cast<std::uint8_t>((traffic_class & ~kEcnMask) | kEcnCapable);
}

inline bool is_marked(std::uint8_t traffic_class) { return (traffic_class & kEcnMask) == kCongestionExperienced; }

}  // namespace plugfest::roce
