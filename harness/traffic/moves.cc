#include "harness/traffic/moves.h"

#include <algorithm>

#include "fabric/system/number.h"

namespace plugfest::traffic {

std::vector<Move> each_chunk(const Share& share, Move move) {
  std::vector<Move> moves;
  for (std::size_t done = 0; done < share.size; done += share.chunk) {
    move.from = move.to = share.offset + done;
    move.count = std::min(share.chunk, share.size - done);
    moves.push_back(move);
  }
  return moves;
}

// Each loop reduces one chunk per rank: the chunks go around once to be summed and once to be copied.
std::vector<Move> ring_all_reduce(const Share& share, std::size_t ranks, std::size_t index) {
  std::vector<Move> moves;
  for (std::size_t done = 0; done < share.size; done += ranks * share.chunk) {
    const std::size_t left = share.size - done;
    const std::size_t chunk = left < ranks * share.chunk ? round_up(divide_up(left, ranks), share.unit) : share.chunk;
    const auto add = [&](std::size_t number, Move move) {
      const std::size_t begin = std::min(number % ranks * chunk, left);
      move.from = move.to = share.offset + done + begin;
      move.count = std::min(chunk, left - begin);
      moves.push_back(move);
    };
    for (std::size_t step = 1; step <= ranks; ++step)
      add(index + ranks - step, {.receive = step > 1, .send = true, .read_input = true, .write_output = step == ranks});
    for (std::size_t step = 1; step < ranks; ++step)
      add(index + ranks - step, {.receive = true, .send = step + 1 < ranks, .write_output = true});
  }
  return moves;
}

std::vector<Move> ring_all_gather(const Share& share, std::span<const int> order, bool in_place) {
  const std::size_t ranks = order.size();
  std::vector<Move> moves;
  for (const Move& chunk : each_chunk(share, {})) {
    for (std::size_t step = 0; step < ranks; ++step) {
      Move move = chunk;
      move.receive = step > 0;
      move.send = step + 1 < ranks;
      move.read_input = step == 0;
      move.write_output = step > 0 || !in_place;
      move.to += static_cast<std::size_t>(order[(ranks - step) % ranks]) * share.per_rank;
      moves.push_back(move);
    }
  }
  return moves;
}

std::vector<Move> ring_reduce_scatter(const Share& share, std::span<const int> order) {
  const std::size_t ranks = order.size();
  std::vector<Move> moves;
  for (const Move& chunk : each_chunk(share, {})) {
    for (std::size_t step = 1; step <= ranks; ++step) {
      Move move = chunk;
      move.receive = step > 1;
      move.send = step < ranks;
      move.read_input = true;
      move.write_output = step == ranks;
      move.from += static_cast<std::size_t>(order[ranks - step]) * share.per_rank;
      moves.push_back(move);
    }
  }
  return moves;
}

std::vector<Move> ring_broadcast(const Share& share, std::span<const int> order, int root, bool in_place) {
  const bool is_first = order.front() == root, is_last = order[1] == root;
  return each_chunk(
      share, {.receive = !is_first, .send = !is_last, .read_input = is_first, .write_output = !is_first || !in_place});
}

std::vector<Move> ring_reduce(const Share& share, std::span<const int> order, int root) {
  const bool is_first = order.back() == root, is_last = order.front() == root;
  return each_chunk(share, {.receive = !is_first, .send = !is_last, .read_input = true, .write_output = is_last});
}

std::vector<Move> tree_up(const Share& share, bool is_root, bool is_leaf) {
  return each_chunk(share, {.receive = !is_leaf, .send = true, .read_input = true, .write_output = is_root});
}

std::vector<Move> tree_down(const Share& share, bool is_leaf) {
  return each_chunk(share, {.receive = true, .send = !is_leaf, .write_output = true});
}

std::vector<Move> every_nth_chunk(const Share& share, std::size_t channel, std::size_t channels, Move move) {
  std::vector<Move> moves;
  for (std::size_t done = 0; done < share.size; done += channels * share.chunk) {
    const std::size_t begin = std::min(done + channel * share.chunk, share.size);
    move.from = move.to = share.offset + begin;
    move.count = std::min(share.chunk, share.size - begin);
    moves.push_back(move);
  }
  return moves;
}

Move chain_up(bool is_tail) { return {.receive = !is_tail, .send = true, .read_input = true}; }

Move chain_down(bool is_head, bool is_tail) {
  return {.receive = true, .send = !is_tail, .write_output = true, .from_switches = is_head};
}

namespace {

using wire::ProxyProtocol;

// Traffic that is worth a channel.
constexpr std::uint64_t kMinTraffic = 16 * 1024;
// Parts are whole cells, and the size of a cell is a multiple of this.
constexpr std::uint64_t kCellUnit = 16;
// An LL message is twice as large as its data, and its bandwidth is half.
constexpr std::uint64_t kLlTraffic = 4;

// Bytes of the collective that make NCCL use another channel: threads of a kernel times their least work.
std::uint64_t bytes_of_channel(const Amount& amount, std::size_t ranks) {
  if (amount.protocol == ProxyProtocol::kLl) return std::uint64_t{512} * 8 * (amount.tree ? 1 : ranks);
  if (amount.protocol == ProxyProtocol::kLl128) return std::uint64_t{640} * 8;
  // Rings of up to 12 GB/s have half of the threads.
  return std::uint64_t{amount.tree ? 512u : 256u} * 64;
}

}  // namespace

Amount all_reduce_of(ProxyProtocol protocol, std::uint64_t bytes, bool tree) {
  return {.protocol = protocol, .bytes = bytes, .element = sizeof(float), .traffic = 2, .tree = tree};
}

Amount all_gather_of(ProxyProtocol protocol, std::uint64_t per_rank, std::size_t ranks) {
  return {.protocol = protocol, .bytes = per_rank, .traffic = ranks, .total = ranks};
}

Amount reduce_scatter_of(ProxyProtocol protocol, std::uint64_t per_rank, std::size_t ranks) {
  return {.protocol = protocol, .bytes = per_rank, .element = sizeof(float), .traffic = ranks, .total = ranks};
}

Amount broadcast_of(ProxyProtocol protocol, std::uint64_t bytes) { return {.protocol = protocol, .bytes = bytes}; }

std::vector<Range> split(const Amount& amount, std::size_t ranks, std::uint32_t channels) {
  const std::uint64_t wanted = amount.bytes * amount.total / bytes_of_channel(amount, ranks);
  const std::uint64_t used = std::clamp<std::uint64_t>(wanted, 1, channels);
  const std::uint64_t traffic = amount.traffic * (amount.protocol == ProxyProtocol::kLl ? kLlTraffic : 1);
  const std::uint64_t cell = round_up(divide_up(kMinTraffic, traffic), kCellUnit);
  const std::uint64_t of_channel = std::max(kMinTraffic, std::max(kMinTraffic, amount.bytes * traffic) / used);
  const std::uint64_t most = divide_up(of_channel, cell * traffic) * cell;
  std::vector<Range> parts;
  for (std::uint64_t done = 0; done < amount.bytes; done += parts.back().bytes) {
    const std::uint64_t left = amount.bytes - done;
    parts.push_back({done, parts.size() + 1 == channels ? left : std::min(left, most)});
  }
  return parts;
}

namespace {

// Rank 0 is the root; each other rank is between its children, whose distance is its lowest bit.
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
