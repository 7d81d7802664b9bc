// Which rules a run asks for: names and globs, as typed after --rule.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "conformance/rules/rule.h"

namespace plugfest::conformance {

/// The rules that match any of `patterns` ("CN-06", "cn_06", "CN-*", "XF-2?", "CN-06,XF-*"), in catalogue order. No
/// pattern at all selects every rule. "@smoke" stands for a group: see groups.h.
/// Errors: std::runtime_error naming the pattern that matches nothing.
std::vector<const Rule*> select_rules(const Catalogue& catalogue, std::span<const std::string> patterns);

}  // namespace plugfest::conformance
