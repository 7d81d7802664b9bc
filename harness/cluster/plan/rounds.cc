#include "harness/cluster/plan/rounds.h"

#include <algorithm>

namespace plugfest::cluster {

std::size_t rounds_of(std::size_t count) { return count < 2 ? 0 : count - 1 + count % 2; }

std::vector<Pair> pairs_of_round(std::size_t count, std::size_t round) {
  // All but the last seat turn by one place in each round; who sits opposite is the partner. An odd count has an empty
  // seat, and its partner rests.
  const std::size_t turning = rounds_of(count);
  std::vector<Pair> pairs;
  const auto add = [&](std::size_t one, std::size_t other) {
    if (one < count && other < count) pairs.emplace_back(std::min(one, other), std::max(one, other));
  };
  add(turning, round);
  for (std::size_t i = 1; i <= turning / 2; ++i) add((round + i) % turning, (round + turning - i) % turning);
  return pairs;
}

}  // namespace plugfest::cluster
