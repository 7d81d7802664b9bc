// Named groups of rules.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace plugfest::conformance {

/// Rules that one name selects.
struct Group {
  /// "@smoke", as in --rule.
  std::string_view name;
  /// "a few fast rules from every part of the contract"
  std::string_view title;
  /// Ids of the rules.
  std::span<const std::string_view> rules;
};

std::span<const Group> groups();
/// Errors: std::runtime_error with a suggestion if there is no group of that name.
const Group& group_named(std::string_view name);

/// The part of the contract that the rules "LD-…" are about: "the library file". `letters`: "LD". Empty if there are no
/// such rules.
std::string_view group_title(std::string_view letters);
/// The place of that part in the contract; parts that do not exist come last.
std::size_t group_position(std::string_view letters);

}  // namespace plugfest::conformance
