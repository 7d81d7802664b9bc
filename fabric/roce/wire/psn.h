// Packet sequence numbers: 24 bits, compared modulo 2^24.
#pragma once

#include <cstdint>

namespace plugfest::roce {

class Psn {
 public:
  constexpr Psn() = default;
  constexpr explicit Psn(std::uint32_t value) : value_(value & kMask) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr Psn operator+(std::uint32_t packets) const { return Psn(value_ + packets); }
  constexpr Psn previous() const { return Psn(value_ - 1); }
  constexpr bool operator==(const Psn&) const = default;

  /// How far this is after `other`: negative if it is before. Between -2^23 and 2^23 - 1.
  constexpr std::int32_t after(Psn other) const {
    const std::uint32_t difference = (value_ - other.value_) & kMask;
    return static_cast<std::int32_t>(difference << 8) >> 8;
  }

 private:
  static constexpr std::uint32_t kMask = 0xffffff;
  std::uint32_t value_ = 0;
};

}  // namespace plugfest::roce
