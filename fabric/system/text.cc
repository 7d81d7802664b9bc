#include "fabric/system/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace plugfest {
namespace {

/// The Levenshtein distance of two words.
std::size_t distance(std::string_view first, std::string_view second) {
  std::vector<std::size_t> row(second.size() + 1);
  for (std::size_t j = 0; j <= second.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= first.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= second.size(); ++j) {
      const std::size_t change = diagonal + (first[i - 1] == second[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known, std::size_t max_distance) {
  const auto found = std::min_element(known.begin(), known.end(), [&](const auto& first, const auto& second) {
    return distance(word, first) < distance(word, second);
  });
  return found != known.end() && distance(word, *found) <= max_distance ? *found : "";
}

std::string suggestion(std::string_view word, std::vector<std::string> known) {
  std::sort(known.begin(), known.end());
  const std::string meant = nearest(word, known, 1 + word.size() / 4);
  return meant.empty() ? fmt::format("expected one of {}", fmt::join(known, ", "))
                       : fmt::format("did you mean {}?", meant);
}

}  // namespace plugfest
