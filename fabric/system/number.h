// Rounds divisions up, computes medians and hashes, and makes random numbers.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

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

/// The median; for an even number of values, the mean of the two in the middle. `values` must not be empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// The FNV-1a hash, which does not depend on the standard library.
constexpr std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

/// An unpredictable number, from getrandom(2). Thread safety: any thread. Errors: std::system_error.
std::uint32_t random_number();

}  // namespace plugfest
