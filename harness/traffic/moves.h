// NCCL's algorithms: the moves of each rank in a collective, chunk by chunk, and their division between channels. The
// replay makes these moves with proxies, and the emulation of NCCL's kernels with the kernels' connections. Source:
// NCCL 2.28.9, src/device/all_reduce.h and others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "harness/wire/replay.h"

namespace plugfest::traffic {

/// One chunk: receives it, reduces it with the rank's own data, and sends it.
struct Move {
  bool receive = false;
  bool send = false;
  bool read_input = false;     ///< the rank's own data takes part
  bool write_output = false;   ///< the result also goes to the output
  std::size_t from = 0;        ///< place in the input
  std::size_t to = 0;          ///< place in the output
  std::size_t count = 0;       ///< an empty chunk also takes its steps
  bool from_switches = false;  ///< receives what the switches have reduced

  /// Whether the result contains the data of all ranks for the first time.
  bool completes() const { return from_switches || (receive && read_input && write_output); }
};

/// The part of one channel. Numbers of elements, or of bytes.
struct Share {
  std::size_t offset = 0;
  std::size_t size = 0;
  std::size_t chunk = 0;
  std::size_t unit = 1;      ///< the size of a shorter chunk of an allreduce is a multiple of this
  std::size_t per_rank = 0;  ///< allgather: size of the input of a rank; reducescatter: of its output
};

/// Returns the same move for each chunk.
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

// An allreduce in the switches (CollNet), along the chain of the ranks of a host: up to the head, which sends the sum
// to the switches, receives the result, and sends it down. The channels take chunks in turn.

/// Cuts `size` elements or bytes for channel `channel` of `channels`. A channel that gets nothing in the last turn
/// makes an empty move.
std::vector<Move> every_nth_chunk(const Share& share, std::size_t channel, std::size_t channels, Move move);
/// The moves of each chunk. `is_tail`: no rank is below.
Move chain_up(bool is_tail);
Move chain_down(bool is_head, bool is_tail);

// How NCCL divides a collective between channels. Source: NCCL 2.28.9, src/enqueue.cc, topoGetAlgoInfo and
// scheduleCollTasksToPlan; src/graph/tuning.cc, ncclTopoTuneModel.

struct Range {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// The parameters of the division.
struct Amount {
  wire::ProxyProtocol protocol = wire::ProxyProtocol::kSimple;
  /// To be divided.
  std::uint64_t bytes = 0;
  /// Bytes of an element; 1 for collectives that do not compute.
  std::uint64_t element = 1;
  /// Bytes on the network, as NCCL estimates them, and of the whole collective, for each one of `bytes`.
  std::uint64_t traffic = 1;
  std::uint64_t total = 1;
  bool tree = false;
};

/// The amounts of operations on floats. `per_rank`: bytes of the input of a rank; in reduce_scatter_of, of its output.
Amount all_reduce_of(wire::ProxyProtocol protocol, std::uint64_t bytes, bool tree);
Amount all_gather_of(wire::ProxyProtocol protocol, std::uint64_t per_rank, std::size_t ranks);
Amount reduce_scatter_of(wire::ProxyProtocol protocol, std::uint64_t per_rank, std::size_t ranks);
Amount broadcast_of(wire::ProxyProtocol protocol, std::uint64_t bytes);

/// The part of each channel that has one, of at most `channels`.
std::vector<Range> split(const Amount& amount, std::size_t ranks, std::uint32_t channels);

// The trees of NCCL between nodes.

/// The parents of all ranks in two binary trees, each rank its own parent where it is the root. A rank with children in
/// the one is a leaf in the other, if their number is even. Channels use them in turn.
/// Source: NCCL 2.28.9, src/graph/trees.cc, ncclGetDtree.
std::vector<std::vector<std::size_t>> double_binary_tree(std::size_t ranks);

}  // namespace plugfest::traffic
