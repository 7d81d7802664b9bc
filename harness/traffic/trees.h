// The trees of NCCL between nodes.
#pragma once

#include <cstddef>
#include <vector>

namespace plugfest::traffic {

/// The parents of all ranks in two binary trees, each rank its own parent where it is the root. A rank with children in
/// the one is a leaf in the other, if their number is even. Channels use them in turn.
/// Source: NCCL 2.28.9, src/graph/trees.cc, ncclGetDtree.
std::vector<std::vector<std::size_t>> double_binary_tree(std::size_t ranks);

}  // namespace plugfest::traffic
