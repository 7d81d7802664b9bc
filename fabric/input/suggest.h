// Suggestions for misspelt words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest::input {

/// The word in `known` that differs least from `word`, if that is by at most `most` letters; otherwise "".
std::string nearest(std::string_view word, const std::vector<std::string>& known, std::size_t most);

/// Returns "did you mean run?" if a word in `known` is similar to `word`; otherwise "there are fabric, mutants, run".
std::string suggestion(std::string_view word, std::vector<std::string> known);

}  // namespace plugfest::input
