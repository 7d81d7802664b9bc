// Named groups of rules.
#pragma once

#include <span>
#include <string_view>

namespace plugfest::conformance {

/// Returns the ids of the rules in a group; empty if there is no such group. "@smoke": a few fast rules from every part
/// of the contract.
std::span<const std::string_view> group_named(std::string_view name);

/// The part of the contract that the rules "LD-…" are about: "the library file". `letters`: "LD". Empty if there are no
/// such rules.
std::string_view group_title(std::string_view letters);

}  // namespace plugfest::conformance
