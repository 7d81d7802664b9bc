#include "harness/traffic/plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "fabric/system/number.h"

namespace plugfest::traffic {

namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kSteps = 8;
// The chunk size of an allreduce is a multiple of this number of bytes.
constexpr std::uint64_t kChunkUnit = 16;
// Messages of one batch (NCCL_MAX_DEV_WORK_P2P_PER_BATCH).
constexpr std::size_t kBatch = 8;
// Largest chunk of a message between two GPUs on one channel.
constexpr std::uint64_t kPairChunk = 128 * kKiB;
constexpr std::uint64_t kPairLlChunk = 16 * kKiB;
// A larger part is split, if there is another channel.
constexpr std::uint64_t kPairLlPart = 64 * kKiB;
// The size of a part is a multiple of this.
constexpr std::uint64_t kPairPartUnit = 4 * kKiB;

// Payload of one step.
std::uint64_t step_payload(ProxyProtocol protocol) {
  const std::uint64_t step = buffer_size(protocol) / kSteps;
  return protocol == ProxyProtocol::kLl ? step / 2 : protocol == ProxyProtocol::kLl128 ? step / 16 * 15 : step;
}

// Part `index` of `parts` nearly equal parts, which are multiples of `unit`; the last ones may be smaller or empty.
Range part(const Range& whole, std::uint64_t parts, std::uint64_t index, std::uint64_t unit) {
  const std::uint64_t share = round_up(divide_up(whole.bytes, parts), unit);
  const std::uint64_t begin = std::min(whole.bytes, share * index);
  return {whole.offset + begin, std::min(share, whole.bytes - begin)};
}

}  // namespace

std::uint64_t buffer_size(ProxyProtocol protocol) {
  constexpr std::uint64_t kSizes[] = {512 * kKiB, 4800 * kKiB, 4096 * kKiB};
  return kSizes[static_cast<std::size_t>(protocol)];
}

// Adds moves to the programs of one kernel, and counts the steps of its operations.
class Plan::Kernel {
 public:
  // `element`: bytes.
  Kernel(Plan& plan, wire::ReplayKernel& kernel, std::uint64_t element)
      : plan_(plan), kernel_(kernel), element_(element) {}
  void begin_program() { kernel_.programs.emplace_back(); }

  // Bytes that one move has at most.
  std::uint64_t chunk() const { return step_payload(kernel_.protocol) * kernel_.chunk_steps; }
  Share share(const Range& part, std::uint64_t per_rank) const {
    return {.offset = part.offset, .size = part.bytes, .chunk = chunk(), .unit = kChunkUnit, .per_rank = per_rank};
  }

  // A move of the GPU, in slices.
  void add(const Move& whole, const std::vector<std::uint32_t>& receives, const std::vector<std::uint32_t>& sends) {
    const std::uint64_t slices = kernel_.chunk_steps / kernel_.slice_steps;
    // NCCL rounds to 16 elements.
    const std::uint64_t unit = 16 * element_;
    const std::uint64_t slice = std::max(divide_up(whole.count, unit * slices) * unit, chunk() / slices / 32);
    for (std::uint64_t i = 0; i < slices; ++i) {
      const std::uint64_t begin = std::min(whole.count, i * slice);
      wire::ReplayMove part;
      if (whole.receive) part.receives = receives;
      if (whole.send) part.sends = sends;
      part.bytes = static_cast<std::uint32_t>(std::min(slice, whole.count - begin));
      part.source = whole.read_input ? static_cast<std::int64_t>(whole.from + begin) : -1;
      part.target = whole.write_output ? static_cast<std::int64_t>(whole.to + begin) : -1;
      move(std::move(part));
    }
  }

  void move(wire::ReplayMove move, std::uint64_t nbytes = wire::kNoLimit) {
    for (const std::uint32_t connection : move.receives) count({connection, false}, nbytes);
    for (const std::uint32_t connection : move.sends) count({connection, true}, nbytes);
    kernel_.programs.back().moves.push_back(std::move(move));
  }

  // One operation for each dedicated connection. Connections of one pool are subs of one operation.
  void finish() {
    std::map<std::uint32_t, std::size_t> by_queue;
    for (const auto& [connection, sends] : order_) {
      const Steps& steps = steps_.at({connection, sends});
      const std::uint32_t queue = plan_.queue(plan_.connections_[connection], sends);
      const auto [found, is_new] = by_queue.try_emplace(queue, kernel_.operations.size());
      if (is_new) kernel_.operations.push_back({sends, queue, {}});
      kernel_.operations[found->second].subs.push_back({connection, steps.steps, steps.nbytes});
    }
  }

 private:
  struct Steps {
    std::uint32_t steps = 0;
    std::uint64_t nbytes = 0;
  };
  void count(std::pair<std::uint32_t, bool> end, std::uint64_t nbytes) {
    const auto [steps, is_new] = steps_.try_emplace(end);
    if (is_new) order_.push_back(end);
    steps->second.steps += kernel_.slice_steps;
    steps->second.nbytes = nbytes;
  }

  Plan& plan_;
  wire::ReplayKernel& kernel_;
  std::uint64_t element_;
  std::map<std::pair<std::uint32_t, bool>, Steps> steps_;
  std::vector<std::pair<std::uint32_t, bool>> order_;
};

Plan::Plan(std::size_t ranks, std::uint32_t channels) : ranks_(ranks), channels_(channels), streams_(ranks) {
  if (ranks < 2 || channels < 1) throw std::invalid_argument("a plan needs two ranks and a channel");
}

std::uint32_t Plan::add(Connection connection) {
  connections_.push_back(std::move(connection));
  return static_cast<std::uint32_t>(connections_.size() - 1);
}

std::uint32_t Plan::add_dedicated(std::size_t from, std::size_t to, std::uint32_t channel) {
  return add({.from = from,
              .to = to,
              .tag = static_cast<std::int32_t>(from),
              .channel = channel,
              .comm = connections_.size(),
              .protocols = {ProxyProtocol::kLl, ProxyProtocol::kLl128, ProxyProtocol::kSimple}});
}

void Plan::add_rings(const std::vector<std::size_t>& order, Directions directions) {
  for (std::uint32_t channel = 0; channel < channels_; ++channel) {
    std::vector<std::size_t> ranks = order;
    if (directions == Directions::kBoth && channel % 2 == 1) std::reverse(ranks.begin(), ranks.end());
    auto& places = rings_.emplace_back(ranks_);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const std::size_t from = ranks[i], to = ranks[(i + 1) % ranks.size()];
      const std::uint32_t connection = add_dedicated(from, to, channel);
      places[from].send = connection;
      places[to].receive = connection;
      std::rotate_copy(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(i), ranks.end(),
                       std::back_inserter(places[from].order));
      const auto& distances = places[from].order;
      const std::ptrdiff_t to_first = std::find(distances.begin(), distances.end(), 0) - distances.begin();
      places[from].index = (ranks.size() - static_cast<std::size_t>(to_first)) % ranks.size();
    }
  }
}

void Plan::add_trees(const std::vector<std::vector<std::size_t>>& trees) {
  for (std::uint32_t channel = 0; channel < channels_; ++channel) {
    const std::vector<std::size_t>& parents = trees.at(channel % trees.size());
    auto& places = trees_.emplace_back(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::size_t parent = parents.at(rank);
      if (parent == rank) continue;
      places[rank].to_parent = add_dedicated(rank, parent, channel);
      places[parent].from_children.push_back(places[rank].to_parent);
      places[rank].from_parent = add_dedicated(parent, rank, channel);
      places[parent].to_children.push_back(places[rank].from_parent);
    }
  }
}

void Plan::add_pairs(std::uint32_t gpus, bool with_ll, const std::function<bool(std::size_t, std::size_t)>& reaches) {
  gpus_ = gpus;
  const std::size_t all = ranks_ * gpus;
  pairs_.assign(all, std::vector<std::vector<std::uint32_t>>(all, std::vector<std::uint32_t>(channels_, kNone)));
  std::map<std::tuple<std::size_t, std::size_t, std::uint32_t>, std::size_t> comms;
  for (std::size_t from = 0; from < all; ++from) {
    for (std::size_t to = 0; to < all; ++to) {
      if (from / gpus == to / gpus || !reaches(from / gpus, to / gpus)) continue;
      for (std::uint32_t channel = 0; channel < channels_; ++channel) {
        Connection connection{.from = from / gpus,
                              .to = to / gpus,
                              .tag = static_cast<std::int32_t>(from),
                              .channel = channel,
                              .shared = true,
                              .from_gpu = static_cast<std::uint32_t>(from % gpus),
                              .to_gpu = static_cast<std::uint32_t>(to % gpus),
                              .comm = comms.try_emplace({from / gpus, to, channel}, connections_.size()).first->second,
                              .protocols = {ProxyProtocol::kSimple}};
        if (with_ll) connection.protocols.insert(connection.protocols.begin(), ProxyProtocol::kLl);
        pairs_[from][to][channel] = add(std::move(connection));
      }
    }
  }
}

std::uint32_t Plan::queue(const Connection& connection, bool sends) const {
  if (!connection.shared) return static_cast<std::uint32_t>(&connection - connections_.data());
  const std::uint32_t gpu = sends ? connection.from_gpu : connection.to_gpu;
  return 1u << 31 | ((gpu * channels_ + connection.channel) * 2 + (sends ? 1u : 0u));
}

Plan::Kernel Plan::begin(std::size_t stream, std::size_t rank, ProxyProtocol protocol, std::uint32_t chunk_steps,
                         std::uint32_t slice_steps, const std::string& name, std::uint64_t element) {
  auto& streams = streams_.at(rank);
  if (streams.size() <= stream) streams.resize(stream + 1);
  wire::ReplayKernel& kernel = streams[stream].kernels.emplace_back();
  kernel.name = name;
  kernel.protocol = protocol;
  kernel.chunk_steps = protocol == ProxyProtocol::kSimple ? chunk_steps : 1;
  kernel.slice_steps = protocol == ProxyProtocol::kSimple ? slice_steps : 1;
  return {*this, kernel, element};
}

template <typename Moves>
void Plan::on_rings(std::size_t stream, RingSteps steps, const char* collective, const Amount& amount,
                    std::uint64_t per_rank, const Moves& moves) {
  const std::string name = next_name(collective);
  const std::vector<Range> parts = split(amount, ranks_, channels_);
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    Kernel kernel = begin(stream, rank, amount.protocol, steps.chunk, steps.slice, name, amount.element);
    for (std::uint32_t channel = 0; channel < parts.size(); ++channel) {
      kernel.begin_program();
      const RingPlace& place = ring(channel, rank);
      for (const Move& move : moves(kernel.share(parts[channel], per_rank), place))
        kernel.add(move, {place.receive}, {place.send});
    }
    kernel.finish();
  }
}

void Plan::all_reduce(std::size_t stream, ProxyProtocol protocol, std::uint64_t bytes) {
  on_rings(stream, {4, 2}, "allreduce", all_reduce_of(protocol, bytes, false), 0,
           [this](const Share& share, const RingPlace& place) { return ring_all_reduce(share, ranks_, place.index); });
}

void Plan::all_gather(std::size_t stream, ProxyProtocol protocol, std::uint64_t bytes) {
  const std::uint64_t per_rank = bytes / ranks_;
  on_rings(stream, {4, 2}, "allgather", all_gather_of(protocol, per_rank, ranks_), per_rank,
           [](const Share& share, const RingPlace& place) { return ring_all_gather(share, place.order, false); });
}

void Plan::reduce_scatter(std::size_t stream, ProxyProtocol protocol, std::uint64_t bytes) {
  const std::uint64_t per_rank = bytes / ranks_;
  on_rings(stream, {4, 2}, "reducescatter", reduce_scatter_of(protocol, per_rank, ranks_), per_rank,
           [](const Share& share, const RingPlace& place) { return ring_reduce_scatter(share, place.order); });
}

void Plan::broadcast(std::size_t stream, ProxyProtocol protocol, std::uint64_t bytes) {
  on_rings(stream, {1, 1}, "broadcast", broadcast_of(protocol, bytes), 0,
           [](const Share& share, const RingPlace& place) { return ring_broadcast(share, place.order, 0, false); });
}

void Plan::tree_all_reduce(std::size_t stream, ProxyProtocol protocol, std::uint64_t bytes) {
  const std::string name = next_name("tree allreduce");
  const std::vector<Range> parts = split(all_reduce_of(protocol, bytes, true), ranks_, channels_);
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    Kernel kernel = begin(stream, rank, protocol, 1, 1, name, sizeof(float));
    for (std::uint32_t channel = 0; channel < parts.size(); ++channel) {
      const TreePlace& place = trees_.at(channel).at(rank);
      const bool is_root = place.to_parent == kNone, is_leaf = place.to_children.empty();
      const Share share = kernel.share(parts[channel], 0);
      // Up and down are separate programs, as NCCL's two halves of a block, except at the root.
      kernel.begin_program();
      for (const Move& move : tree_up(share, is_root, is_leaf))
        kernel.add(move, place.from_children, is_root ? place.to_children : std::vector{place.to_parent});
      if (is_root) continue;
      kernel.begin_program();
      for (const Move& move : tree_down(share, is_leaf)) kernel.add(move, {place.from_parent}, place.to_children);
    }
    kernel.finish();
  }
}

void Plan::exchange(std::size_t stream, ProxyProtocol protocol, const std::string& name,
                    const std::function<const Message*(std::size_t from, std::size_t to)>& message) {
  const std::string numbered = next_name(name.c_str());
  const std::size_t all = ranks_ * gpus_;
  for (std::size_t gpu = 0; gpu < all; ++gpu) {
    for (std::size_t first = 0; first < all; first += kBatch) {
      Kernel kernel = begin(stream + gpu % gpus_, gpu / gpus_, protocol, 1, 1, numbered);
      const auto add = [&](std::size_t from, std::size_t to, std::size_t round) {
        const Message* what = from == to || pairs_[from][to].front() != kNone ? message(from, to) : nullptr;
        if (what == nullptr) return;
        if (from == to) {
          kernel.begin_program();
          kernel.move({{},
                       {},
                       static_cast<std::uint32_t>(what->bytes),
                       static_cast<std::int64_t>(what->source),
                       static_cast<std::int64_t>(what->target)});
          return;
        }
        const bool simple = protocol == ProxyProtocol::kSimple;
        // Small messages use one channel.
        std::uint64_t parts = 1;
        while (divide_up(what->bytes, parts) > (simple ? kPairChunk : kPairLlPart) && parts <= channels_ / 2)
          parts *= 2;
        for (std::uint64_t i = 0; i < parts; ++i) {
          const Range range = part({0, what->bytes}, parts, i, kPairPartUnit);
          const std::uint64_t chunk = !simple                        ? kPairLlChunk
                                      : what->bytes < kPairChunk     ? kPairChunk / 4
                                      : what->bytes < 8 * kPairChunk ? kPairChunk / 2
                                                                     : kPairChunk;
          const std::uint32_t connection = pairs_[from][to][(round + i) % channels_];
          const std::uint64_t largest = std::min(chunk, range.bytes);
          const std::uint64_t nbytes = simple ? largest : divide_up(largest, 8) * 16;
          kernel.begin_program();
          for (std::uint64_t done = 0; done == 0 || done < range.bytes; done += chunk) {
            wire::ReplayMove move;
            move.bytes = static_cast<std::uint32_t>(std::min(chunk, range.bytes - done));
            if (from == gpu) {
              move.sends = {connection};
              move.source = static_cast<std::int64_t>(what->source + range.offset + done);
            } else {
              move.receives = {connection};
              move.target = static_cast<std::int64_t>(what->target + range.offset + done);
            }
            kernel.move(std::move(move), nbytes);
          }
        }
      };
      for (std::size_t round = first; round < std::min(all, first + kBatch); ++round) {
        add(gpu, (gpu + round) % all, round);
        if (round != 0) add((gpu + all - round) % all, gpu, round);
      }
      kernel.finish();
    }
  }
}

std::vector<wire::ReplayStream> Plan::take_streams(std::size_t rank) { return std::exchange(streams_.at(rank), {}); }

}  // namespace plugfest::traffic
