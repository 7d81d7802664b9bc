// Selects rules by id or glob, as in --rule.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "conformance/rules/rule.h"

namespace plugfest::conformance {

/// Returns the rules that match any of `patterns` ("CN-06", "cn_06", "CN-*", "XF-2?", "CN-06,XF-*"), in catalogue
/// order. Without patterns it returns every rule. "@smoke" is a group: see groups.h. Errors: std::runtime_error that
/// names the pattern without a match.
std::vector<const Rule*> select_rules(const Catalogue& catalogue, std::span<const std::string> patterns);

}  // namespace plugfest::conformance
