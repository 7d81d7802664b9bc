// What the user may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plugfest::input {

/// "did you mean run?" when one of `known` is near to `word`; else "there are fabric, mutants, rules, run".
std::string suggestion(std::string_view word, std::vector<std::string> known);

}  // namespace plugfest::input
