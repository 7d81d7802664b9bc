#include "harness/traffic/collective.h"

#include <algorithm>
#include <cstring>

#include "fabric/system/number.h"
#include "harness/traffic/moves.h"

namespace plugfest::traffic {

namespace {

constexpr std::uint32_t kChannels = 2;
// Elements that one message of the control channel carries.
constexpr std::uint64_t kPiece = 256 * 1024;
// GPUs that one kernel of an exchange serves.
constexpr std::size_t kBatch = 8;

// Small whole numbers, so that sums of floats are exact in any order.
float element(std::uint64_t index) { return static_cast<float>(1 + (index * 0x9e3779b97f4a7c15ull >> 61)); }

void fill(control::Rank rank, const control::Memory& memory, float factor) {
  for (std::uint64_t first = 0; first * sizeof(float) < memory.size(); first += kPiece) {
    std::vector<float> values(std::min(kPiece, memory.size() / sizeof(float) - first));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = factor * element(first + i);
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    rank.write(memory.address() + first * sizeof(float), bytes);
  }
}

}  // namespace

const std::vector<CollectiveKind>& collectives() {
  static const std::vector<CollectiveKind> all = {
      {"allreduce", "sum", false, false},  {"allgather", "none", true, false}, {"reducescatter", "sum", true, false},
      {"broadcast", "none", false, false}, {"alltoall", "none", true, true},   {"sendrecv", "none", false, true},
  };
  return all;
}

Collective::Collective(const Team& team, const CollectiveKind& kind, Algorithm algorithm, std::uint64_t max_bytes,
                       std::uint64_t seed)
    : team_(team), kind_(kind), algorithm_(algorithm), seed_(seed), plan_(team.size(), kChannels) {
  const bool tree = algorithm == Algorithm::kTree;
  if (kind.pairs || tree) {
    if (!team.complete()) throw Unsuitable("not every host reaches every other one: choose another topology");
    if (tree)
      plan_.add_trees(double_binary_tree(team.size()));
    else
      plan_.add_pairs(1, false, [](std::size_t, std::size_t) { return true; });
  } else {
    const std::vector<std::size_t> order = team.ring_order();
    if (order.empty()) throw Unsuitable("the hosts do not reach each other in a ring: choose another topology");
    plan_.add_rings(order, Directions::kOne);
  }
  setup_.emplace(team, plan_);
  for (std::size_t rank = 0; rank < team.size(); ++rank) {
    control::Rank on = team.rank(rank);
    input_.push_back(on.allocate(rounded(max_bytes), control::Placement::kStart));
    output_.push_back(on.allocate(rounded(max_bytes), control::Placement::kStart));
    fill(on, input_.back(), static_cast<float>(rank + 1));
  }
}

std::uint64_t Collective::rounded(std::uint64_t bytes) const {
  const std::uint64_t unit = sizeof(float) * (kind_.size_is_total ? team_.size() : 1);
  return std::max(round_up(bytes, unit), unit);
}

std::uint64_t Collective::count(std::uint64_t bytes) const {
  return bytes / sizeof(float) / (kind_.size_is_total ? team_.size() : 1);
}

void Collective::add_operation(std::uint64_t bytes, ProxyProtocol protocol) {
  if (algorithm_ == Algorithm::kTree) return plan_.tree_all_reduce(0, protocol, bytes);
  if (kind_.name == "allreduce") return plan_.all_reduce(0, protocol, bytes);
  if (kind_.name == "allgather") return plan_.all_gather(0, protocol, bytes);
  if (kind_.name == "reducescatter") return plan_.reduce_scatter(0, protocol, bytes);
  if (kind_.name == "broadcast") return plan_.broadcast(0, protocol, bytes);
  Plan::Message message;
  const std::size_t ranks = team_.size();
  const bool all = kind_.name == "alltoall";
  const std::uint64_t per_rank = all ? bytes / ranks : bytes;
  plan_.exchange(0, ProxyProtocol::kSimple, std::string(kind_.name),
                 [&](std::size_t from, std::size_t to) -> const Plan::Message* {
                   if (!all && to != (from + 1) % ranks) return nullptr;
                   message = {
                       .bytes = per_rank, .source = all ? to * per_rank : 0, .target = all ? from * per_rank : 0};
                   return &message;
                 });
}

std::vector<Collective::Part> Collective::expected(std::size_t rank, std::uint64_t bytes) const {
  const std::size_t ranks = team_.size();
  const std::uint64_t all = bytes / sizeof(float), per_rank = all / ranks;
  const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
  if (kind_.name == "allreduce") return {{0, 0, all, sum}};
  if (kind_.name == "broadcast") return {{0, 0, all, 1}};
  if (kind_.name == "reducescatter") return {{0, rank * per_rank, per_rank, sum}};
  if (kind_.name == "sendrecv") return {{0, 0, all, static_cast<float>((rank + ranks - 1) % ranks + 1)}};
  std::vector<Part> parts;
  for (std::size_t from = 0; from < ranks; ++from)
    parts.push_back(
        {from * per_rank, kind_.name == "alltoall" ? rank * per_rank : 0, per_rank, static_cast<float>(from + 1)});
  return parts;
}

std::uint64_t Collective::wrong_elements(std::uint64_t bytes) {
  std::uint64_t wrong = 0;
  for (std::size_t rank = 0; rank < team_.size(); ++rank) {
    control::Rank on = team_.rank(rank);
    for (const Part& part : expected(rank, bytes)) {
      for (std::uint64_t done = 0; done < part.count; done += kPiece) {
        const std::uint64_t count = std::min(kPiece, part.count - done);
        const std::vector<std::byte> got =
            on.read(output_[rank].sub((part.target + done) * sizeof(float), count * sizeof(float)));
        for (std::uint64_t i = 0; i < count; ++i) {
          float value;
          std::memcpy(&value, got.data() + i * sizeof(value), sizeof(value));
          if (value != part.factor * element(part.first + done + i)) ++wrong;
        }
      }
    }
    // NaN, which no operation computes.
    on.set(output_[rank].sub(0, bytes), 0xff);
  }
  return wrong;
}

Timing Collective::measure(std::uint64_t bytes, ProxyProtocol protocol, std::size_t operations,
                           const std::atomic<bool>* stop) {
  RunOptions options{.seed = seed_, .patterns = false, .noise = false, .stop = stop};
  for (std::size_t rank = 0; rank < team_.size(); ++rank) {
    options.input.push_back(input_[rank]);
    options.output.push_back(output_[rank]);
  }
  Timing measurement;
  add_operation(bytes, protocol);
  run(team_, *setup_, plan_, options);
  measurement.wrong = wrong_elements(bytes);

  // The first operation of this run lets the ranks begin at the same time.
  for (std::size_t i = 0; i <= operations; ++i) add_operation(bytes, protocol);
  const std::vector<wire::ReplayReport> reports = run(team_, *setup_, plan_, options);
  const std::size_t kernels = kind_.pairs ? divide_up(team_.size(), kBatch) : 1;
  for (const wire::ReplayReport& report : reports) {
    const auto total = static_cast<double>(report.kernel_ends_ns.back() - report.kernel_ends_ns.at(kernels - 1));
    measurement.seconds += total / 1e9 / static_cast<double>(operations) / static_cast<double>(reports.size());
  }
  measurement.wrong += wrong_elements(bytes);
  return measurement;
}

}  // namespace plugfest::traffic
