// Divisions that round up.
#pragma once

#include <concepts>
#include <type_traits>

namespace plugfest {

/// How many parts of `unit` hold `value`. Requires `unit` > 0.
template <std::unsigned_integral Number>
constexpr Number divide_up(Number value, std::type_identity_t<Number> unit) {
  return (value + unit - 1) / unit;
}

/// The first multiple of `unit` that is not less than `value`.
template <std::unsigned_integral Number>
constexpr Number round_up(Number value, std::type_identity_t<Number> unit) {
  return divide_up(value, unit) * unit;
}

}  // namespace plugfest
