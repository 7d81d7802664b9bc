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

/// Each loop reduces one chunk per rank: the chunks go around once to be summed and once to be copied.
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
      move.to += static_cast<std::size_t>(order[(ranks - step) % ranks]) * share.each;
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
      move.from += static_cast<std::size_t>(order[ranks - step]) * share.each;
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

}  // namespace plugfest::traffic
