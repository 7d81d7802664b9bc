// Suggestions for misspelt words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plugfest::input {

/// Returns "did you mean run?" if a word in `known` is similar to `word`; otherwise "there are fabric, mutants, run".
std::string suggestion(std::string_view word, std::vector<std::string> known);

}  // namespace plugfest::input
