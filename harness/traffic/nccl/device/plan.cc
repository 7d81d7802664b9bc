#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "fabric/system/number.h"
#include "harness/traffic/nccl/device/kernel.h"

namespace plugfest::nccl::device {

namespace {

constexpr std::array kProtocols = {Protocol::kLowLatency, Protocol::kLowLatency128, Protocol::kSimple};
constexpr std::array kOperators = {Operator::kSum, Operator::kProduct, Operator::kMinMax, Operator::kScaledSum,
                                   Operator::kSumThenDivide};

std::vector<Algorithm> algorithms_of(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return {Algorithm::kRing, Algorithm::kCollNetDirect, Algorithm::kNvls, Algorithm::kPat};
    case Collective::kAllReduce:
      return {Algorithm::kTree,         Algorithm::kRing, Algorithm::kCollNetDirect,
              Algorithm::kCollNetChain, Algorithm::kNvls, Algorithm::kNvlsTree};
    default:
      return {Algorithm::kRing};
  }
}

/// All combinations, in the order of NCCL's table (src/device/generate.py).
std::vector<Function> all_rows() {
  std::vector<Function> rows = {{}};
  const auto add_protocols = [&](Function function) {
    for (const Algorithm algorithm : algorithms_of(function.collective)) {
      function.algorithm = algorithm;
      for (const Protocol protocol : kProtocols) {
        function.protocol = protocol;
        rows.push_back(function);
      }
    }
  };
  for (const Collective collective : {Collective::kAllGather, Collective::kBroadcast})
    add_protocols({.collective = collective});
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter})
    for (const Operator op : kOperators)
      for (int type = 0; type < kTypes; ++type)
        add_protocols({.collective = collective, .op = op, .type = static_cast<Type>(type)});
  return rows;
}

}  // namespace

std::string Function::text() const {
  static constexpr std::array kCollectiveNames = {"SendRecv",  "AllGather", "Broadcast",
                                                  "AllReduce", "Reduce",    "ReduceScatter"};
  static constexpr std::array kOperatorNames = {"Sum", "Prod", "MinMax", "PreMulSum", "SumPostDiv"};
  static constexpr std::array kTypeNames = {"i8",  "u8",  "i32", "u32",  "i64",    "u64",
                                            "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
  static constexpr std::array kAlgorithmNames = {"Tree",     "Ring", "CollNetDirect", "CollNetChain", "NVLS",
                                                 "NVLSTree", "PAT"};
  static constexpr std::array kProtocolNames = {"LL", "LL128", "Simple"};
  std::string text = kCollectiveNames[static_cast<std::size_t>(collective)];
  if (collective == Collective::kSendRecv) return text;
  if (collective != Collective::kAllGather && collective != Collective::kBroadcast)
    text +=
        fmt::format(" {} {}", kOperatorNames[static_cast<std::size_t>(op)], kTypeNames[static_cast<std::size_t>(type)]);
  return fmt::format("{} {} {}", text, kAlgorithmNames[static_cast<std::size_t>(algorithm)],
                     kProtocolNames[static_cast<std::size_t>(protocol)]);
}

FunctionTable::FunctionTable(std::span<const int> rows) {
  const std::vector<Function> functions = all_rows();
  static_assert(kRows == 1 + 12 + 3 + 60 * (18 + 3 + 12));
  for (std::size_t row = 0; row < functions.size() && row < rows.size(); ++row) {
    if (rows[row] < 0) continue;
    const auto number = static_cast<std::size_t>(rows[row]);
    if (by_number_.size() <= number) by_number_.resize(number + 1);
    by_number_[number] = functions[row];
  }
}

std::optional<Function> FunctionTable::find(unsigned number) const {
  return number < by_number_.size() ? by_number_[number] : std::nullopt;
}

namespace {

/// Calls `loop(offset, count)` for each chunk of a part.
template <class Loop>
void each_chunk(const Part& part, Loop loop) {
  for (std::size_t done = 0; done < part.size; done += part.chunk)
    loop(part.offset + done, std::min(part.chunk, part.size - done));
}

std::vector<Lane> ring_lane(const Ring& ring, std::vector<Move> moves) {
  return {{.receive = {ring.previous}, .send = {ring.next}, .moves = std::move(moves)}};
}

/// Each loop reduces one chunk per rank: the chunks go around once to be summed and once to be copied.
std::vector<Lane> ring_all_reduce(const Part& part, const Ring& ring) {
  std::vector<Move> moves;
  const auto ranks = static_cast<std::size_t>(part.ranks);
  const auto index = static_cast<std::size_t>(ring.index);
  std::size_t chunk = part.chunk;
  for (std::size_t done = 0; done < part.size; done += ranks * part.chunk) {
    const std::size_t left = part.size - done;
    if (left < ranks * part.chunk) {
      const std::size_t unit = std::max<std::size_t>(16 / size_of(part.function.type), 1);
      chunk = round_up(divide_up(left, ranks), unit);
    }
    const auto add = [&](std::size_t number, Move move) {
      const std::size_t begin = number % ranks * chunk;
      move.from = move.to = part.offset + done + begin;
      move.count = begin < left ? std::min(chunk, left - begin) : 0;
      moves.push_back(move);
    };
    add(index + ranks - 1, {.send = true, .read_input = true});
    for (std::size_t j = 2; j < ranks; ++j) add(index + ranks - j, {.receive = true, .send = true, .read_input = true});
    add(index, {.receive = true, .send = true, .read_input = true, .write_output = true, .finish = true});
    for (std::size_t j = 1; j + 1 < ranks; ++j)
      add(index + ranks - j, {.receive = true, .send = true, .write_output = true});
    add(index + 1, {.receive = true, .write_output = true});
  }
  return ring_lane(ring, std::move(moves));
}

/// One lane sums on the way up and one copies on the way down; the root does both in one.
std::vector<Lane> tree_all_reduce(const Part& part, const Tree& tree) {
  const auto moves = [&](Move move) {
    std::vector<Move> list;
    each_chunk(part, [&](std::size_t offset, std::size_t count) {
      move.from = move.to = offset;
      move.count = count;
      list.push_back(move);
    });
    return list;
  };
  const bool leaf = tree.down.empty();
  if (tree.up < 0)
    return {
        {.receive = tree.down,
         .send = tree.down,
         .moves = moves({.receive = true, .send = true, .read_input = true, .write_output = true, .finish = true})}};
  return {
      {.receive = tree.down, .send = {tree.up}, .moves = moves({.receive = !leaf, .send = true, .read_input = true})},
      {.receive = {tree.up},
       .send = tree.down,
       .moves = moves({.receive = true, .send = !leaf, .write_output = true})}};
}

std::vector<Lane> ring_all_gather(const Part& part, const Ring& ring) {
  std::vector<Move> moves;
  each_chunk(part, [&](std::size_t offset, std::size_t count) {
    const auto add = [&](int number, Move move) {
      move.to = offset + static_cast<std::size_t>(ring.ranks[number]) * part.count;
      move.from = offset;
      move.count = count;
      moves.push_back(move);
    };
    add(0, {.send = true, .read_input = true, .write_output = !part.in_place});
    for (int j = 1; j + 1 < part.ranks; ++j) add(part.ranks - j, {.receive = true, .send = true, .write_output = true});
    add(1, {.receive = true, .write_output = true});
  });
  return ring_lane(ring, std::move(moves));
}

std::vector<Lane> ring_reduce_scatter(const Part& part, const Ring& ring) {
  std::vector<Move> moves;
  each_chunk(part, [&](std::size_t offset, std::size_t count) {
    const auto add = [&](int number, Move move) {
      move.from = offset + static_cast<std::size_t>(ring.ranks[number]) * part.count;
      move.to = offset;
      move.count = count;
      moves.push_back(move);
    };
    add(part.ranks - 1, {.send = true, .read_input = true});
    for (int j = 2; j < part.ranks; ++j) add(part.ranks - j, {.receive = true, .send = true, .read_input = true});
    add(0, {.receive = true, .read_input = true, .write_output = true, .finish = true});
  });
  return ring_lane(ring, std::move(moves));
}

/// Broadcast and Reduce: the ring is a chain from or to the root.
std::vector<Lane> chain(const Part& part, const Ring& ring, Move first, Move middle, Move last, int from, int to) {
  const Move kind = part.rank == from ? first : part.rank == to ? last : middle;
  std::vector<Move> moves;
  each_chunk(part, [&](std::size_t offset, std::size_t count) {
    Move move = kind;
    move.from = move.to = offset;
    move.count = count;
    moves.push_back(move);
  });
  return ring_lane(ring, std::move(moves));
}

/// The rank before the root in the ring, given any rank's view of it.
int before_root(const Part& part, const Ring& ring) {
  for (int i = 0; i < part.ranks; ++i)
    if (ring.ranks[(i + 1) % part.ranks] == part.root) return ring.ranks[i];
  return part.root;
}

int after_root(const Part& part, const Ring& ring) {
  for (int i = 0; i < part.ranks; ++i)
    if (ring.ranks[i] == part.root) return ring.ranks[(i + 1) % part.ranks];
  return part.root;
}

}  // namespace

bool supports(const Function& function) {
  if (function.protocol == Protocol::kLowLatency128) return false;
  if (function.algorithm == Algorithm::kTree) return function.collective == Collective::kAllReduce;
  return function.algorithm == Algorithm::kRing;
}

Cut cut_of(const Function& function) {
  Cut cut{.protocol = function.protocol};
  // Source: NCCL, src/include/collectives.h; the chain and tree algorithms take one step at a time.
  const bool many = function.algorithm == Algorithm::kRing &&
                    (function.collective == Collective::kAllReduce || function.collective == Collective::kAllGather ||
                     function.collective == Collective::kReduceScatter);
  if (many) {
    cut.slices = 2;
    cut.steps = 2;
  }
  return cut;
}

std::vector<Lane> plan(const Part& part, const Ring& ring, const Tree& tree) {
  switch (part.function.collective) {
    case Collective::kAllReduce:
      return part.function.algorithm == Algorithm::kTree ? tree_all_reduce(part, tree) : ring_all_reduce(part, ring);
    case Collective::kAllGather:
      return ring_all_gather(part, ring);
    case Collective::kReduceScatter:
      return ring_reduce_scatter(part, ring);
    case Collective::kBroadcast:
      return chain(part, ring, {.send = true, .read_input = true, .write_output = !part.in_place},
                   {.receive = true, .send = true, .write_output = true}, {.receive = true, .write_output = true},
                   part.root, before_root(part, ring));
    case Collective::kReduce:
      return chain(part, ring, {.send = true, .read_input = true}, {.receive = true, .send = true, .read_input = true},
                   {.receive = true, .read_input = true, .write_output = true, .finish = true}, after_root(part, ring),
                   part.root);
    case Collective::kSendRecv:
      break;
  }
  return {};
}

}  // namespace plugfest::nccl::device
