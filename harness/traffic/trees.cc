#include "harness/traffic/trees.h"

namespace plugfest::traffic {

namespace {

/// Rank 0 is the root; each other rank is between its children, whose distance is its lowest bit.
std::size_t parent_of(std::size_t rank, std::size_t ranks) {
  if (rank == 0) return 0;
  const std::size_t bit = rank & (~rank + 1);
  const std::size_t up = (rank ^ bit) | (bit << 1);
  return up < ranks ? up : rank ^ bit;
}

}  // namespace

std::vector<std::vector<std::size_t>> double_binary_tree(std::size_t ranks) {
  std::vector<std::vector<std::size_t>> parents(2);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    parents[0].push_back(parent_of(rank, ranks));
    // The second tree is the first one, mirrored or moved by one rank.
    const bool mirrored = ranks % 2 == 0;
    const std::size_t place = mirrored ? ranks - 1 - rank : (rank + ranks - 1) % ranks;
    const std::size_t up = parent_of(place, ranks);
    parents[1].push_back(mirrored ? ranks - 1 - up : (up + 1) % ranks);
  }
  return parents;
}

}  // namespace plugfest::traffic
