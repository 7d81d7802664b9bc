// A plan: the connections of a group of ranks, and the work of their GPUs and proxies on these connections.
//
// Ranks have numbers from 0. A rank is a process and stands for a node; it has one or more GPUs, which only matter for
// sends and receives between pairs. Sizes are as in NCCL: a step of the SIMPLE protocol has 512 KiB, of LL 64 KiB,
// of LL128 600 KiB. Source: NCCL 2.28.9, src/device/all_reduce.h and others, src/enqueue.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/traffic/moves.h"
#include "harness/wire/replay.h"

namespace plugfest::traffic {

using wire::ProxyProtocol;

struct Connection {
  std::size_t from = 0;
  std::size_t to = 0;
  /// Number of the sending GPU; for rings and trees of the sending rank.
  std::int32_t tag = 0;
  std::uint32_t channel = 0;
  /// Buffers are slots of a pool of the GPU at either end: sends and receives between pairs.
  bool shared = false;
  std::uint32_t from_gpu = 0;
  std::uint32_t to_gpu = 0;
  /// Connections with the same number use one comm, if the plugin receives more than one buffer at once: the number of
  /// the first of them.
  std::size_t comm = 0;
  /// Protocols that have a buffer.
  std::vector<ProxyProtocol> protocols;
};

/// Bytes of the buffer of each protocol of a dedicated connection.
std::uint64_t buffer_size(ProxyProtocol protocol);

enum class Directions {
  /// All rings run in one direction, like NCCL's rings between nodes.
  kOne,
  /// Every second ring runs in the reverse order.
  kBoth,
};

/// Makes connections, then kernels on them. Not thread-safe.
class Plan {
 public:
  Plan(std::size_t ranks, std::uint32_t channels);

  std::size_t ranks() const { return ranks_; }
  /// Number of GPUs of each rank.
  std::uint32_t gpus() const { return gpus_; }
  std::uint32_t channels() const { return channels_; }
  const std::vector<Connection>& connections() const { return connections_; }

  /// A ring through all ranks for each channel.
  void add_rings(const std::vector<std::size_t>& order, Directions directions);
  /// A tree for each channel: `parents[rank]`, the rank itself for the root. Connections in both directions. The
  /// channels use `trees` in turn.
  void add_trees(const std::vector<std::vector<std::size_t>>& trees);
  /// Connections between all GPUs of different ranks that `reaches` accepts. All messages from one rank to one GPU on
  /// one channel share a comm, as with PXN.
  void add_pairs(std::uint32_t gpus, bool with_ll, const std::function<bool(std::size_t, std::size_t)>& reaches);

  // Each function adds one kernel to stream `stream` of every rank. `bytes`: the size as nccl-tests defines it, a
  // multiple of the size of a float times the number of ranks.
  void all_reduce(std::size_t stream, ProxyProtocol protocol, std::uint64_t bytes);
  void all_gather(std::size_t stream, ProxyProtocol protocol, std::uint64_t bytes);
  void reduce_scatter(std::size_t stream, ProxyProtocol protocol, std::uint64_t bytes);
  void broadcast(std::size_t stream, ProxyProtocol protocol, std::uint64_t bytes);
  void tree_all_reduce(std::size_t stream, ProxyProtocol protocol, std::uint64_t bytes);

  /// A message between two GPUs, with offsets in the sender's input and in the receiver's output.
  struct Message {
    std::uint64_t bytes = 0;
    std::uint64_t source = 0;
    std::uint64_t target = 0;
  };
  /// Sends `message(from, to)` from each GPU to each other one that it is connected to, in the order of NCCL. GPUs are
  /// numbered through all ranks. Nothing is sent where it returns nothing. The GPU `g` of each rank uses stream
  /// `stream + g`; kernels are batches of 8 messages.
  void exchange(std::size_t stream, ProxyProtocol protocol, const std::string& name,
                const std::function<const Message*(std::size_t from, std::size_t to)>& message);

  /// The kernels of a rank, with connections by their number in connections(). Removes them.
  std::vector<wire::ReplayStream> take_streams(std::size_t rank);

 private:
  static constexpr std::uint32_t kNone = ~0u;
  struct RingPlace {
    std::uint32_t receive = kNone, send = kNone;
    /// Distance from rank 0 along the ring.
    std::size_t index = 0;
    /// Rank at each distance along the ring, beginning with this one.
    std::vector<int> order;
  };
  struct TreePlace {
    std::uint32_t from_parent = kNone, to_parent = kNone;
    std::vector<std::uint32_t> from_children, to_children;
  };
  /// Makes the kernel of one rank.
  class Kernel;

  std::uint32_t add(Connection connection);
  std::uint32_t add_dedicated(std::size_t from, std::size_t to, std::uint32_t channel);
  Kernel begin(std::size_t stream, std::size_t rank, ProxyProtocol protocol, std::uint32_t chunk_steps,
               std::uint32_t slice_steps, const std::string& name, std::uint64_t element = 1);
  struct RingSteps {
    std::uint32_t chunk, slice;
  };
  /// Makes a kernel for each rank, with one program for each channel that has a part. `moves(share, place)` returns
  /// the moves of a program.
  template <typename Moves>
  void on_rings(std::size_t stream, RingSteps steps, const char* collective, const Amount& amount,
                std::uint64_t per_rank, const Moves& moves);
  std::string next_name(const char* collective) { return std::string(collective) + " " + std::to_string(++kernels_); }
  const RingPlace& ring(std::uint32_t channel, std::size_t rank) const { return rings_.at(channel).at(rank); }
  std::uint32_t queue(const Connection& connection, bool sends) const;

  std::size_t ranks_;
  std::uint32_t channels_;
  std::uint32_t gpus_ = 1;
  std::vector<Connection> connections_;
  std::vector<std::vector<RingPlace>> rings_;
  std::vector<std::vector<TreePlace>> trees_;
  /// pairs_[from][to][channel], by GPU: a connection, or kNone.
  std::vector<std::vector<std::vector<std::uint32_t>>> pairs_;
  std::vector<std::vector<wire::ReplayStream>> streams_;
  std::uint64_t kernels_ = 0;
};

}  // namespace plugfest::traffic
