// What each rank does in a collective, chunk by chunk: NCCL's primitives. The replay makes them with proxies, and the
// emulation of NCCL's kernels with the kernels' connections. Source: NCCL 2.28.9, src/device/all_reduce.h and others.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace plugfest::traffic {

/// One chunk: receives it, reduces it with the rank's own data, and sends it.
struct Move {
  bool receive = false;
  bool send = false;
  bool read_input = false;    ///< the rank's own data takes part
  bool write_output = false;  ///< the result also goes to the output
  std::size_t from = 0;       ///< place in the input
  std::size_t to = 0;         ///< place in the output
  std::size_t count = 0;      ///< an empty chunk also takes its steps

  /// Whether the result contains the data of all ranks for the first time.
  bool completes() const { return receive && read_input && write_output; }
};

/// The part of one channel. Numbers of elements, or of bytes.
struct Share {
  std::size_t offset = 0;
  std::size_t size = 0;
  std::size_t chunk = 0;
  std::size_t unit = 1;  ///< shorter chunks of an allreduce are multiples of it
  std::size_t each = 0;  ///< allgather: size of the input of a rank; reducescatter: of its output
};

/// The same move for each chunk.
std::vector<Move> each_chunk(const Share& share, Move move);

// Along a ring. `order`: the ranks from this one on. `in_place`: the rank's own part of the output is its input.

/// `index`: place of this rank, which owns the chunk of that number.
std::vector<Move> ring_all_reduce(const Share& share, std::size_t ranks, std::size_t index);
std::vector<Move> ring_all_gather(const Share& share, std::span<const int> order, bool in_place);
std::vector<Move> ring_reduce_scatter(const Share& share, std::span<const int> order);
std::vector<Move> ring_broadcast(const Share& share, std::span<const int> order, int root, bool in_place);
std::vector<Move> ring_reduce(const Share& share, std::span<const int> order, int root);

// An allreduce along a tree: up to the root, which answers at once, and down.

std::vector<Move> tree_up(const Share& share, bool is_root, bool is_leaf);
std::vector<Move> tree_down(const Share& share, bool is_leaf);

}  // namespace plugfest::traffic
