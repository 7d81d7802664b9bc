// Which pairs are measured at the same time.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace plugfest::cluster {

using Pair = std::pair<std::size_t, std::size_t>;

/// The number of rounds in which each of `count` members meets each other one once, and is in one pair of a round at
/// most: count - 1 for an even count, count for an odd one, 0 below 2.
std::size_t rounds_of(std::size_t count);

/// The pairs of round `round`, the smaller number first; count / 2 pairs. This is the circle method of a round-robin
/// tournament: its cost does not depend on the rounds before. Requires round < rounds_of(count).
std::vector<Pair> pairs_of_round(std::size_t count, std::size_t round);

}  // namespace plugfest::cluster
