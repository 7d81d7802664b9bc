// NCCL's numbers of device functions, and the moves of the algorithms that run here.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "harness/nccl/device/kernel.h"

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

// All combinations, in the order of NCCL's table (src/device/generate.py).
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

bool supports(const Function& function) {
  if (function.protocol == Protocol::kLowLatency128) return false;
  if (function.algorithm == Algorithm::kTree || function.algorithm == Algorithm::kCollNetChain)
    return function.collective == Collective::kAllReduce;
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
  const Function& function = part.function;
  const traffic::Share share{.offset = part.offset,
                             .size = part.size,
                             .chunk = part.chunk,
                             .unit = std::max<std::size_t>(16 / size_of(function.type), 1),
                             .per_rank = part.count};
  if (function.algorithm == Algorithm::kTree) {
    const bool is_root = tree.up < 0, is_leaf = tree.down.empty();
    const std::vector<int> up = {tree.up};
    std::vector<Lane> lanes = {
        {.receive = tree.down, .send = is_root ? tree.down : up, .moves = traffic::tree_up(share, is_root, is_leaf)}};
    if (!is_root) lanes.push_back({.receive = up, .send = tree.down, .moves = traffic::tree_down(share, is_leaf)});
    return lanes;
  }
  if (function.algorithm == Algorithm::kCollNetChain) {
    const bool is_head = tree.up == part.ranks, is_tail = tree.down.empty();
    const auto moves = [&](const Move& move) {
      return traffic::every_nth_chunk(share, part.channel, part.channels, move);
    };
    return {{.receive = tree.down, .send = {tree.up}, .moves = moves(traffic::chain_up(is_tail)), .connection = 1},
            {.receive = {tree.up}, .send = tree.down, .moves = moves(traffic::chain_down(is_head, is_tail))}};
  }
  const std::span order(ring.ranks, static_cast<std::size_t>(part.ranks));
  const auto moves = [&]() -> std::vector<Move> {
    switch (function.collective) {
      case Collective::kAllReduce:
        return traffic::ring_all_reduce(share, order.size(), static_cast<std::size_t>(ring.index));
      case Collective::kAllGather:
        return traffic::ring_all_gather(share, order, part.in_place);
      case Collective::kReduceScatter:
        return traffic::ring_reduce_scatter(share, order);
      case Collective::kBroadcast:
        return traffic::ring_broadcast(share, order, part.root, part.in_place);
      case Collective::kReduce:
        return traffic::ring_reduce(share, order, part.root);
      case Collective::kSendRecv:
        break;
    }
    return {};
  };
  return {{.receive = {ring.previous}, .send = {ring.next}, .moves = moves()}};
}

}  // namespace plugfest::nccl::device
