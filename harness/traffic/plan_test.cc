// Plans compute what the collective means, and both ends of each connection agree.
#include "harness/traffic/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

#include "harness/traffic/table.h"

namespace plugfest::traffic {
namespace {

// Executes the kernels of a plan, with messages of any number in flight.
class Interpreter {
 public:
  Interpreter(Plan& plan, std::size_t input_floats, std::size_t output_floats)
      : input_(plan.ranks()), output_(plan.ranks(), std::vector<float>(output_floats, -1)) {
    for (std::size_t rank = 0; rank < plan.ranks(); ++rank) {
      for (std::size_t i = 0; i < input_floats; ++i)
        input_[rank].push_back(static_cast<float>((rank + 1) * (i % 13 + 1)));
      streams_.push_back(plan.take_streams(rank));
    }
  }

  // False if no move is possible although some are left.
  bool run() {
    std::map<const wire::ReplayProgram*, std::size_t> next;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
        for (const wire::ReplayStream& stream : streams_[rank]) {
          for (const wire::ReplayKernel& kernel : stream.kernels) {
            for (const wire::ReplayProgram& program : kernel.programs) {
              std::size_t& place = next[&program];
              while (place < program.moves.size() && make(rank, program.moves[place])) {
                ++place;
                moved = true;
              }
            }
            const auto done = [&](const wire::ReplayProgram& one) { return next[&one] == one.moves.size(); };
            if (!std::all_of(kernel.programs.begin(), kernel.programs.end(), done)) break;
          }
        }
      }
    }
    for (const auto& [program, place] : next)
      if (place < program->moves.size()) return false;
    for (const auto& [connection, messages] : in_flight_)
      if (!messages.empty()) return false;
    return true;
  }

  // Compares the steps of the operations with the steps of the moves.
  void expect_steps() const {
    for (const auto& streams : streams_) {
      for (const wire::ReplayStream& stream : streams) {
        for (const wire::ReplayKernel& kernel : stream.kernels) {
          std::map<std::pair<std::uint32_t, bool>, std::uint32_t> steps;
          for (const wire::ReplayProgram& program : kernel.programs) {
            for (const wire::ReplayMove& move : program.moves) {
              for (const std::uint32_t end : move.receives) steps[{end, false}] += kernel.slice_steps;
              for (const std::uint32_t end : move.sends) steps[{end, true}] += kernel.slice_steps;
            }
          }
          for (const wire::ReplayOperation& operation : kernel.operations) {
            EXPECT_LE(operation.subs.size(), 16u) << kernel.name;
            for (const wire::ReplaySub& sub : operation.subs) {
              EXPECT_EQ((steps[{sub.connection, operation.sends}]), sub.nsteps) << kernel.name;
              EXPECT_EQ(sub.nsteps % kernel.chunk_steps, 0u) << kernel.name;
              steps.erase({sub.connection, operation.sends});
            }
          }
          EXPECT_TRUE(steps.empty()) << kernel.name << ": messages without a proxy";
        }
      }
    }
  }

  float input(std::size_t rank, std::size_t i) const { return input_[rank].at(i); }
  const std::vector<float>& output(std::size_t rank) const { return output_[rank]; }

 private:
  bool make(std::size_t rank, const wire::ReplayMove& move) {
    for (const std::uint32_t end : move.receives)
      if (in_flight_[end].empty()) return false;
    std::vector<float> value(move.bytes / sizeof(float), 0);
    for (const std::uint32_t end : move.receives) {
      const std::vector<float> received = in_flight_[end].front();
      in_flight_[end].pop_front();
      EXPECT_EQ(received.size(), value.size()) << "sizes of sender and receiver differ";
      for (std::size_t i = 0; i < std::min(value.size(), received.size()); ++i) value[i] += received[i];
    }
    if (move.source >= 0) {
      const std::size_t from = static_cast<std::size_t>(move.source) / sizeof(float);
      for (std::size_t i = 0; i < value.size(); ++i) value[i] += input_[rank].at(from + i);
    }
    if (move.target >= 0) {
      const std::size_t to = static_cast<std::size_t>(move.target) / sizeof(float);
      for (std::size_t i = 0; i < value.size(); ++i) output_[rank].at(to + i) = value[i];
    }
    for (const std::uint32_t end : move.sends) in_flight_[end].push_back(value);
    return true;
  }

  std::vector<std::vector<float>> input_, output_;
  std::vector<std::vector<wire::ReplayStream>> streams_;
  std::map<std::uint32_t, std::deque<std::vector<float>>> in_flight_;
};

struct Case {
  std::size_t ranks;
  std::size_t floats_per_rank;
  ProxyProtocol protocol;
};

const std::vector<Case> kCases = {
    {2, 1, ProxyProtocol::kLl},      {3, 7, ProxyProtocol::kLl128},        {2, 1'200'000, ProxyProtocol::kSimple},
    {3, 40'001, ProxyProtocol::kLl}, {5, 150'003, ProxyProtocol::kSimple}, {4, 200'000, ProxyProtocol::kLl128},
    {16, 3, ProxyProtocol::kSimple},
};

Plan rings(std::size_t ranks) {
  Plan plan(ranks, 2);
  std::vector<std::size_t> order(ranks);
  std::iota(order.begin(), order.end(), 0u);
  std::swap(order.front(), order.back());
  plan.add_rings(order, Directions::kBoth);
  return plan;
}

float sum(const Interpreter& interpreter, std::size_t ranks, std::size_t i) {
  float total = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) total += interpreter.input(rank, i);
  return total;
}

// Executes a plan, and compares each place of the output of each rank with `expected(interpreter, rank, place)`.
template <typename Expected>
void expect_output(Plan& plan, std::size_t input_floats, std::size_t output_floats, Expected expected) {
  Interpreter interpreter(plan, input_floats, output_floats);
  interpreter.expect_steps();
  ASSERT_TRUE(interpreter.run());
  for (std::size_t rank = 0; rank < plan.ranks(); ++rank) {
    std::size_t i = 0;
    while (i < output_floats && interpreter.output(rank)[i] == expected(interpreter, rank, i)) ++i;
    if (i == output_floats) continue;
    ADD_FAILURE() << "rank " << rank << ", place " << i << ": " << interpreter.output(rank)[i] << ", expected "
                  << expected(interpreter, rank, i);
  }
}

TEST(Plan, AllReduceGivesEachRankTheSum) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.ranks);
    const std::size_t count = one.ranks * one.floats_per_rank;
    for (const bool tree : {false, true}) {
      Plan plan = rings(one.ranks);
      std::vector<std::size_t> parents = {0};
      for (std::size_t rank = 1; rank < one.ranks; ++rank) parents.push_back((rank - 1) / 3);
      plan.add_trees({parents, double_binary_tree(one.ranks).front()});
      if (tree)
        plan.tree_all_reduce(0, one.protocol, count * sizeof(float));
      else
        plan.all_reduce(0, one.protocol, count * sizeof(float));
      expect_output(plan, count, count, [&](const Interpreter& interpreter, std::size_t, std::size_t i) {
        return sum(interpreter, one.ranks, i);
      });
    }
  }
}

TEST(Plan, AllGatherGivesEachRankAllInputs) {
  for (const Case& one : kCases) {
    Plan plan = rings(one.ranks);
    const std::size_t floats = one.floats_per_rank;
    plan.all_gather(0, one.protocol, one.ranks * floats * sizeof(float));
    expect_output(plan, floats, one.ranks * floats, [&](const Interpreter& interpreter, std::size_t, std::size_t i) {
      return interpreter.input(i / floats, i % floats);
    });
  }
}

TEST(Plan, ReduceScatterGivesEachRankItsPartOfTheSum) {
  for (const Case& one : kCases) {
    Plan plan = rings(one.ranks);
    const std::size_t floats = one.floats_per_rank;
    plan.reduce_scatter(0, one.protocol, one.ranks * floats * sizeof(float));
    expect_output(plan, one.ranks * floats, floats,
                  [&](const Interpreter& interpreter, std::size_t rank, std::size_t i) {
                    return sum(interpreter, one.ranks, rank * floats + i);
                  });
  }
}

TEST(Plan, BroadcastSendsTheInputOfRank0) {
  for (const Case& one : kCases) {
    Plan plan = rings(one.ranks);
    const std::size_t count = one.ranks * one.floats_per_rank;
    plan.broadcast(0, one.protocol, count * sizeof(float));
    expect_output(plan, count, count,
                  [](const Interpreter& interpreter, std::size_t, std::size_t i) { return interpreter.input(0, i); });
  }
}

TEST(Plan, ExchangeReachesEveryOtherGpu) {
  for (const Case& one : kCases) {
    if (one.protocol == ProxyProtocol::kLl128) continue;  // sends and receives do not use it
    Plan plan(one.ranks, 2);
    plan.add_pairs(1, true, [](std::size_t, std::size_t) { return true; });
    const std::uint64_t bytes = one.floats_per_rank * sizeof(float);
    Plan::Message message;
    plan.exchange(0, one.protocol, "alltoall", [&](std::size_t from, std::size_t to) {
      message = {.bytes = bytes, .source = to * bytes, .target = from * bytes};
      return &message;
    });
    const std::size_t floats = one.floats_per_rank, all = one.ranks * floats;
    expect_output(plan, all, all, [&](const Interpreter& interpreter, std::size_t rank, std::size_t i) {
      return interpreter.input(i / floats, rank * floats + i % floats);
    });
  }
}

TEST(Plan, MessagesOfARankToOneGpuShareAComm) {
  Plan plan(2, 2);
  plan.add_pairs(3, false, [](std::size_t, std::size_t) { return true; });
  std::map<std::size_t, std::vector<std::int32_t>> tags;
  for (const Connection& connection : plan.connections()) tags[connection.comm].push_back(connection.tag);
  EXPECT_EQ(tags.size(), 2u * 3u * 2u) << "directions, receiving GPUs, channels";
  EXPECT_EQ(tags.begin()->second, (std::vector<std::int32_t>{0, 1, 2}));
}

std::vector<std::uint64_t> sizes(const std::vector<Range>& parts) {
  std::vector<std::uint64_t> sizes;
  for (const Range& one : parts) sizes.push_back(one.bytes);
  return sizes;
}

TEST(Split, GivesEachChannelWholeCells) {
  using testing::ElementsAre;
  const ProxyProtocol simple = ProxyProtocol::kSimple, ll = ProxyProtocol::kLl;
  EXPECT_THAT(sizes(split(all_reduce_of(simple, 12, false), 3, 2)), ElementsAre(12));
  // Cells of 8192 bytes: 16 KiB of traffic.
  EXPECT_THAT(sizes(split(all_reduce_of(simple, 100'000, false), 3, 2)), ElementsAre(57'344, 42'656));
  EXPECT_THAT(sizes(split(all_gather_of(simple, 1'000'000, 3), 3, 2)), ElementsAre(503'424, 496'576));
  EXPECT_THAT(sizes(split(broadcast_of(simple, 131'073), 3, 2)), ElementsAre(65'536, 65'537))
      << "the last has the rest";
  EXPECT_THAT(sizes(split(all_reduce_of(ll, 12'288, false), 3, 2)), ElementsAre(12'288));
}

TEST(DoubleBinaryTree, HasOtherInnerRanksInTheSecondTree) {
  using testing::ElementsAre;
  EXPECT_THAT(double_binary_tree(2), ElementsAre(ElementsAre(0, 0), ElementsAre(1, 1)));
  EXPECT_THAT(double_binary_tree(3), ElementsAre(ElementsAre(0, 2, 0), ElementsAre(1, 1, 0)));
  EXPECT_THAT(double_binary_tree(4), ElementsAre(ElementsAre(0, 2, 0, 2), ElementsAre(1, 3, 1, 3)));
}

TEST(Table, ScalesTheBusBandwidthLikeNcclTests) {
  const auto bandwidth = [](std::string_view collective) {
    return bus_bandwidth({.collective = collective, .ranks = 4, .bytes = 1'000'000'000}, {1, 0});
  };
  EXPECT_DOUBLE_EQ(bandwidth("allreduce"), 1.5);
  EXPECT_DOUBLE_EQ(bandwidth("allgather"), 0.75);
  EXPECT_DOUBLE_EQ(bandwidth("broadcast"), 1);
}

TEST(Table, ShowsNoTimesWhereThereAreNone) {
  EXPECT_EQ(
      table_row({.ranks = 2, .bytes = 8, .count = 2, .timings = {Timing{1e-6, 0}, std::nullopt}}),
      "            8             2     float    none    -1     1.00   0.008   0.008      0      N/A     N/A     N/A    "
      "N/A\n");
}

}  // namespace
}  // namespace plugfest::traffic
