// Rules that are asked for together by one name.
#pragma once

#include <span>
#include <string_view>

namespace plugfest::conformance {

/// The rules behind "@smoke": few, quick, and something of every part of the contract. Empty for a name that is none.
std::span<const std::string_view> group_named(std::string_view name);

}  // namespace plugfest::conformance
