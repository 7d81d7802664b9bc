// How NCCL divides a collective between channels. Source: NCCL 2.28.9, src/enqueue.cc, topoGetAlgoInfo and
// scheduleCollTasksToPlan; src/graph/tuning.cc, ncclTopoTuneModel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/wire/replay.h"

namespace plugfest::traffic {

struct Range {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// What the division depends on.
struct Amount {
  rank::ProxyProtocol protocol = rank::ProxyProtocol::kSimple;
  /// To be divided.
  std::uint64_t bytes = 0;
  /// Bytes of an element; 1 for collectives that do not compute.
  std::uint64_t element = 1;
  /// Bytes on the network, as NCCL estimates them, and of the whole collective, for each one of `bytes`.
  std::uint64_t traffic = 1;
  std::uint64_t total = 1;
  bool tree = false;
};

/// Of floats. `each`: bytes of the input of a rank; of its output.
Amount all_reduce_of(rank::ProxyProtocol protocol, std::uint64_t bytes, bool tree);
Amount all_gather_of(rank::ProxyProtocol protocol, std::uint64_t each, std::size_t ranks);
Amount reduce_scatter_of(rank::ProxyProtocol protocol, std::uint64_t each, std::size_t ranks);
Amount broadcast_of(rank::ProxyProtocol protocol, std::uint64_t bytes);

/// The part of each channel that has one, of at most `channels`.
std::vector<Range> split(const Amount& amount, std::size_t ranks, std::uint32_t channels);

// The trees of NCCL between nodes.

/// The parents of all ranks in two binary trees, each rank its own parent where it is the root. A rank with children in
/// the one is a leaf in the other, if their number is even. Channels use them in turn.
/// Source: NCCL 2.28.9, src/graph/trees.cc, ncclGetDtree.
std::vector<std::vector<std::size_t>> double_binary_tree(std::size_t ranks);

}  // namespace plugfest::traffic
