// An allreduce of CollNet: chains of ranks in hosts, and reducing switches, which are a pipe between the heads.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/nccl/commands.h"
#include "harness/nccl/device/kernel.h"
#include "harness/nccl/device/testing.h"

namespace plugfest::nccl::device {

namespace {

constexpr std::size_t kChannels = 2;

struct Hosts {
  int hosts = 0, ranks_of_host = 0;
  int ranks() const { return hosts * ranks_of_host; }
};

// Runs an allreduce of `count` elements on all ranks. False if it does not end.
bool run(const Hosts& hosts, const Reduction& reduction, std::size_t count, Wires& wires,
         const std::vector<std::vector<std::byte>>& inputs, std::vector<std::vector<std::byte>>& outputs) {
  const Function function{.collective = Collective::kAllReduce,
                          .op = reduction.op,
                          .type = reduction.type,
                          .algorithm = Algorithm::kCollNetChain};
  EXPECT_TRUE(supports(function));
  Cut cut = cut_of(function);
  cut.step_bytes = kStepBytes;
  std::vector<std::unique_ptr<Pipe>> pipes;
  for (std::size_t channel = 0; channel < kChannels; ++channel) {
    Part part{.function = function,
              .ranks = hosts.ranks(),
              .channel = channel,
              .channels = kChannels,
              .count = count,
              .size = count,
              .chunk = kStepBytes / 2 / size_of(reduction.type)};
    std::vector<Connection> from_heads, to_heads;
    std::size_t turns = 0;
    for (int rank = 0; rank < hosts.ranks(); ++rank) {
      const bool is_head = rank % hosts.ranks_of_host == 0, is_tail = (rank + 1) % hosts.ranks_of_host == 0;
      const Tree chain{.up = is_head ? hosts.ranks() : rank - 1,
                       .down = is_tail ? std::vector<int>{} : std::vector<int>{rank + 1}};
      part.rank = rank;
      for (Lane& lane : plan(part, {}, chain)) {
        std::vector<Connection> receive, send;
        for (const int peer : lane.receive)
          receive.push_back(wires.between(peer, rank, false, channel, lane.connection));
        for (const int peer : lane.send) send.push_back(wires.between(rank, peer, true, channel, lane.connection));
        turns = lane.moves.size();
        const auto at = static_cast<std::size_t>(rank);
        pipes.push_back(std::make_unique<Pipe>(cut, reduction, std::move(receive), std::move(send), inputs[at].data(),
                                               outputs[at].data(), std::move(lane.moves)));
      }
      if (!is_head) continue;
      from_heads.push_back(wires.between(rank, hosts.ranks(), false, channel, 1));
      to_heads.push_back(wires.between(hosts.ranks(), rank, true, channel, 0));
    }
    // Switches reduce whole chunks: they do not know which part contains data.
    pipes.push_back(
        std::make_unique<Pipe>(cut, reduction, from_heads, to_heads, nullptr, nullptr,
                               std::vector<Move>(turns, {.receive = true, .send = true, .count = part.chunk})));
  }
  for (bool progress = true; progress;) {
    progress = false;
    for (const auto& pipe : pipes) progress |= pipe->advance();
  }
  return std::all_of(pipes.begin(), pipes.end(), [](const auto& pipe) { return pipe->done(); });
}

class CollNetChainTest : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(CollNetChainTest, GivesEachRankTheReductionOfAll) {
  const Hosts hosts{std::get<0>(GetParam()), std::get<1>(GetParam())};
  const auto ranks = static_cast<std::size_t>(hosts.ranks());
  const std::uint64_t twice = ranks << 1;
  // Averages of integers are divided once, by the heads; averages of floats are scaled in each rank.
  for (const auto& [type, wanted, op, argument] :
       {std::tuple{Type::kFloat, RedOp::kSum, Operator::kSum, std::uint64_t{0}},
        std::tuple{Type::kInt32, RedOp::kAverage, Operator::kSumThenDivide, twice | 1},
        std::tuple{Type::kUint64, RedOp::kAverage, Operator::kSumThenDivide, twice},
        std::tuple{Type::kDouble, RedOp::kMax, Operator::kMinMax, std::uint64_t{1}}}) {
    const std::size_t element = size_of(type);
    Wires wires;  // the steps of a connection go on from one collective to the next
    // 5: the last turn of the second channel is empty; 128 floats are one chunk.
    for (const std::size_t count : {1u, 5u, 128u, 129u, 5003u}) {
      const Pattern pattern(count, type, wanted, hosts.ranks());
      std::vector<std::vector<std::byte>> inputs(ranks, std::vector<std::byte>(count * element)), outputs = inputs;
      for (std::size_t rank = 0; rank < ranks; ++rank)
        pattern.fill(inputs[rank].data(), static_cast<int>(rank), 0, count);
      ASSERT_TRUE(run(hosts, {type, op, argument}, count, wires, inputs, outputs)) << "count " << count;
      for (std::size_t rank = 0; rank < ranks; ++rank)
        ASSERT_EQ(pattern.compare_sum(outputs[rank].data(), 0, count).first, "")
            << "rank " << rank << ", count " << count << ", type " << static_cast<int>(type);
    }
  }
}

// A pipe, and so the switches of this test, reduces up to four sources.
INSTANTIATE_TEST_SUITE_P(HostsAndRanksOfAHost, CollNetChainTest,
                         testing::Combine(testing::Values(2, 3, 4), testing::Values(1, 2, 4)));

}  // namespace

}  // namespace plugfest::nccl::device
