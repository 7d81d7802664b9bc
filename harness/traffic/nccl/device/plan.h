// The algorithms: which moves a rank makes for its part of a collective.
#pragma once

#include <cstddef>
#include <vector>

#include "harness/traffic/nccl/device/functions.h"
#include "harness/traffic/nccl/device/pipe.h"

namespace plugfest::nccl::device {

/// The ring of a channel.
struct Ring {
  int index = 0;               ///< of this rank
  int previous = 0, next = 0;  ///< ranks
  const int* ranks = nullptr;  ///< all ranks, from this one on
};

/// The tree of a channel, from this rank.
struct Tree {
  int up = -1;  ///< -1: this rank is the root
  std::vector<int> down;
};

/// What one channel of one rank does.
struct Part {
  Function function;
  int rank = 0, ranks = 0;
  int root = 0;
  std::size_t count = 0;   ///< AllGather: elements of a rank's input; ReduceScatter: of its output
  std::size_t offset = 0;  ///< first element of this channel's part
  std::size_t size = 0;    ///< elements of this channel's part
  std::size_t chunk = 0;   ///< elements of a chunk
  bool in_place = false;   ///< the rank's own part of the output is its input
};

/// One pipe: the ranks that it receives from and sends to, and its moves.
struct Lane {
  std::vector<int> receive;
  std::vector<int> send;
  std::vector<Move> moves;
};

/// The lanes of a part; they run at the same time.
std::vector<Lane> plan(const Part& part, const Ring& ring, const Tree& tree);

/// Slices of a chunk, and steps of a slice, with the Simple protocol.
Cut cut_of(const Function& function);

/// Whether plan() knows the function.
bool supports(const Function& function);

}  // namespace plugfest::nccl::device
