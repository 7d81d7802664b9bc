// Collectives, all ranks of which run in one thread and are connected by memory; reductions; floats.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/nccl/commands.h"
#include "harness/nccl/device/kernel.h"
#include "harness/nccl/device/testing.h"
#include "harness/nccl/device/types.h"

namespace plugfest::nccl::device {

namespace {

struct Job {
  Function function;
  int ranks = 0;
  std::size_t count = 0;  // elements of a rank's smaller buffer
  std::size_t chunk = 0;
  int root = 0;
};

// The buffers of one rank, and the expected content of its output.
struct Buffers {
  std::vector<std::byte> input, output;
};

class Runner {
 public:
  explicit Runner(const Job& job) : job_(job) {}

  // Runs the collective; false if it does not end.
  bool run(std::vector<Buffers>& ranks) {
    std::vector<std::unique_ptr<Pipe>> pipes;
    std::vector<std::vector<int>> orders;
    for (int rank = 0; rank < job_.ranks; ++rank) {
      std::vector<int> order;
      for (int i = 0; i < job_.ranks; ++i) order.push_back((rank + i) % job_.ranks);
      orders.push_back(order);
    }
    for (int rank = 0; rank < job_.ranks; ++rank) {
      const Ring ring{.index = rank,
                      .previous = (rank + job_.ranks - 1) % job_.ranks,
                      .next = (rank + 1) % job_.ranks,
                      .ranks = orders[static_cast<std::size_t>(rank)].data()};
      Tree tree{.up = rank == 0 ? -1 : (rank - 1) / 2, .down = {}};
      for (const int child : {2 * rank + 1, 2 * rank + 2})
        if (child < job_.ranks) tree.down.push_back(child);
      Cut cut = cut_of(job_.function);
      cut.step_bytes = kStepBytes;
      const Part part{.function = job_.function,
                      .rank = rank,
                      .ranks = job_.ranks,
                      .root = job_.root,
                      .count = job_.count,
                      .size = job_.count,
                      .chunk = job_.chunk};
      Buffers& own = ranks[static_cast<std::size_t>(rank)];
      for (Lane& lane : plan(part, ring, tree)) {
        std::vector<Connection> receive, send;
        for (const int peer : lane.receive) receive.push_back(wires_.between(peer, rank, false));
        for (const int peer : lane.send) send.push_back(wires_.between(rank, peer, true));
        pipes.push_back(std::make_unique<Pipe>(cut, Reduction{.type = job_.function.type, .op = job_.function.op},
                                               std::move(receive), std::move(send), own.input.data(), own.output.data(),
                                               std::move(lane.moves)));
      }
    }
    for (bool progress = true; progress;) {
      progress = false;
      for (const auto& pipe : pipes) progress |= pipe->advance();
    }
    for (const auto& pipe : pipes)
      if (!pipe->done()) return false;
    return true;
  }

 private:
  Job job_;
  Wires wires_;
};

class CollectiveTest : public testing::TestWithParam<std::tuple<Collective, Algorithm, Protocol, int>> {};

TEST_P(CollectiveTest, GivesEachRankItsElements) {
  const auto [collective, algorithm, protocol, ranks] = GetParam();
  const auto n = static_cast<std::size_t>(ranks);
  for (const Type type : {Type::kInt8, Type::kFloat, Type::kDouble}) {
    const std::size_t element = size_of(type);
    // The steps of a connection go on from one collective to the next.
    for (const std::size_t count : {1u, 7u, 100u, 1000u, 5003u}) {
      const bool gathers = collective == Collective::kAllGather, scatters = collective == Collective::kReduceScatter;
      const Job job{.function = {.collective = collective,
                                 .op = Operator::kSum,
                                 .type = type,
                                 .algorithm = algorithm,
                                 .protocol = protocol},
                    .ranks = ranks,
                    .count = count,
                    // A step of LL is half data.
                    .chunk = kStepBytes / 2 / element,
                    .root = ranks - 1};
      Runner runner(job);
      for (std::uint64_t seed : {1u, 2u, 3u}) {
        const Pattern pattern(seed, type, RedOp::kSum, ranks);
        std::vector<Buffers> buffers(n);
        for (int rank = 0; rank < ranks; ++rank) {
          Buffers& own = buffers[static_cast<std::size_t>(rank)];
          own.input.resize(count * element * (scatters ? n : 1));
          own.output.resize(count * element * (gathers ? n : 1), std::byte{0x5a});
          pattern.fill(own.input.data(), rank, 0, own.input.size() / element);
        }
        ASSERT_TRUE(runner.run(buffers)) << "count " << count;
        for (std::size_t rank = 0; rank < n; ++rank) {
          const std::byte* const output = buffers[rank].output.data();
          std::size_t wrong = 0;
          if (collective == Collective::kAllReduce) wrong = pattern.compare_sum(output, 0, count).count;
          if (scatters) wrong = pattern.compare_sum(output, rank * count, count).count;
          if (collective == Collective::kReduce && rank == n - 1) wrong = pattern.compare_sum(output, 0, count).count;
          if (collective == Collective::kBroadcast) wrong = pattern.compare(output, ranks - 1, 0, count).count;
          for (std::size_t peer = 0; gathers && peer < n; ++peer)
            wrong += pattern.compare(output + peer * count * element, static_cast<int>(peer), 0, count).count;
          ASSERT_EQ(wrong, 0u) << "rank " << rank << ", count " << count << ", type " << static_cast<int>(type);
        }
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<CollectiveTest::ParamType>& info) {
  const auto [collective, algorithm, protocol, ranks] = info.param;
  std::string text =
      Function{.collective = collective, .algorithm = algorithm, .protocol = protocol}.text() + std::to_string(ranks);
  std::erase(text, ' ');
  return text;
}

constexpr auto kRings = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                         Collective::kBroadcast, Collective::kReduce};

INSTANTIATE_TEST_SUITE_P(Ring, CollectiveTest,
                         testing::Combine(testing::ValuesIn(kRings), testing::Values(Algorithm::kRing),
                                          testing::Values(Protocol::kSimple, Protocol::kLowLatency),
                                          testing::Values(2, 3, 8)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Tree, CollectiveTest,
                         testing::Combine(testing::Values(Collective::kAllReduce), testing::Values(Algorithm::kTree),
                                          testing::Values(Protocol::kSimple, Protocol::kLowLatency),
                                          testing::Values(2, 3, 8)),
                         name_of);

TEST(Pipe, WritesAllLinesBeforeFlagsRepeat) {
  // A reader that is one round of flags ahead must not take an old line for a new one.
  Wires wires;
  Connection out = wires.between(0, 1, true);
  constexpr std::uint64_t kCleaning = 0x7ffffff8;
  *out.saved_step = *out.head = kCleaning;
  std::uint64_t word = 7;
  const Cut cut{.protocol = Protocol::kLowLatency, .step_bytes = kStepBytes};
  Pipe pipe(cut, {}, {}, {out}, reinterpret_cast<const std::byte*>(&word), nullptr,
            {{.send = true, .read_input = true, .count = 8}});
  EXPECT_TRUE(pipe.advance());
  EXPECT_TRUE(pipe.done());
  for (std::size_t i = 0; i < kStepBytes / sizeof(Line); ++i)
    EXPECT_EQ(out.line_buffer[i].halves[0] >> 32, kCleaning + 1) << i;
}

TEST(Pipe, WaitsForAFreeStep) {
  Wires wires;
  Connection out = wires.between(0, 1, true);
  std::uint64_t word = 7;
  const Cut cut{.protocol = Protocol::kSimple, .step_bytes = kStepBytes};
  Pipe pipe(cut, {}, {}, {out}, reinterpret_cast<const std::byte*>(&word), nullptr,
            std::vector<Move>(kSteps + 1, {.send = true, .read_input = true, .count = 8}));
  EXPECT_TRUE(pipe.advance());
  EXPECT_EQ(*out.tail, kSteps);
  EXPECT_FALSE(pipe.advance());
  ++*out.head;
  EXPECT_TRUE(pipe.advance());
  EXPECT_TRUE(pipe.done());
}

// combine() of two numbers, the first of which is the rank's own.
template <typename T>
T combined(const Reduction& reduction, T own, T other) {
  T result{};
  const std::array sources = {reinterpret_cast<const std::byte*>(&own), reinterpret_cast<const std::byte*>(&other)};
  std::byte* const target = reinterpret_cast<std::byte*>(&result);
  combine(reduction, sources, {&target, 1}, 1, true, true);
  return result;
}

std::uint64_t bits_of(float value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

TEST(Reduce, ComparesSignedIntegersByTheMask) {
  // The sign bit makes signed numbers compare like unsigned ones; all other bits turn min into max.
  EXPECT_EQ(combined<std::int32_t>({Type::kInt32, Operator::kMinMax, 0x80000000}, -5, 3), -5);
  EXPECT_EQ(combined<std::int32_t>({Type::kInt32, Operator::kMinMax, 0x7fffffff}, -5, 3), 3);
  EXPECT_EQ(combined<std::uint8_t>({Type::kUint8, Operator::kMinMax, 0}, 200, 3), 3);
  EXPECT_EQ(combined<std::uint8_t>({Type::kUint8, Operator::kMinMax, 0xff}, 200, 3), 200);
}

TEST(Reduce, ComparesFloatsByBitZero) {
  EXPECT_EQ(combined<float>({Type::kFloat, Operator::kMinMax, 0}, -1.5f, 2.0f), -1.5f);
  EXPECT_EQ(combined<float>({Type::kFloat, Operator::kMinMax, 0xffffffff}, -1.5f, 2.0f), 2.0f);
}

TEST(Reduce, DividesTheSumOfSignedAndUnsignedIntegers) {
  EXPECT_EQ(combined<std::int8_t>({Type::kInt8, Operator::kSumThenDivide, 2 << 1 | 1}, -7, -2), -4);
  EXPECT_EQ(combined<std::uint8_t>({Type::kUint8, Operator::kSumThenDivide, 2 << 1}, 200, 50), 125);
}

TEST(Reduce, ScalesTheOwnInputOnly) {
  EXPECT_EQ(combined<float>({Type::kFloat, Operator::kScaledSum, bits_of(0.5f)}, 8.0f, 3.0f), 7.0f);
}

TEST(Reduce, WrapsIntegersAround) {
  EXPECT_EQ(combined<std::uint8_t>({Type::kUint8, Operator::kSum, 0}, 250, 10), 4);
  EXPECT_EQ(combined<std::uint8_t>({Type::kUint8, Operator::kProduct, 0}, 20, 20), 144);
}

TEST(Reduce, WritesAllElementsToAllTargets) {
  // More elements than one block.
  constexpr std::size_t kCount = 5000;
  std::vector<double> own(kCount, 1), other(kCount, 2), first(kCount), second(kCount);
  const std::array sources = {reinterpret_cast<const std::byte*>(own.data()),
                              reinterpret_cast<const std::byte*>(other.data())};
  const std::array targets = {reinterpret_cast<std::byte*>(first.data()), reinterpret_cast<std::byte*>(second.data())};
  combine({Type::kDouble, Operator::kSum, 0}, sources, targets, kCount, true, true);
  EXPECT_EQ(first, std::vector<double>(kCount, 3));
  EXPECT_EQ(second, first);
}

TEST(Floats, HalfHasTheBitsOfIeee754) {
  EXPECT_EQ(Half(1.0f).bits, 0x3c00);
  EXPECT_EQ(Half(-2.0f).bits, 0xc000);
  EXPECT_EQ(Half(65504.0f).bits, 0x7bff);
  EXPECT_EQ(Half(65520.0f).bits, 0x7c00) << "rounds to infinity";
  EXPECT_EQ(Half(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(Half(0x1p-25f).bits, 0x0000) << "a tie goes to the even neighbor";
  EXPECT_EQ(Half(0x1.8p-24f).bits, 0x0002) << "a tie goes to the even neighbor";
  EXPECT_EQ(Half(0x1.ff8p-15f).bits, 0x03ff) << "largest subnormal number";
  EXPECT_TRUE(std::isnan(float(Half(NAN))));
}

template <typename Float>
void expect_round_trips() {
  for (unsigned bits = 0; bits < 1u << 8 * sizeof(Float); ++bits) {
    Float number;
    number.bits = static_cast<decltype(number.bits)>(bits);
    const bool saturates = std::is_same_v<Float, E5m2> && std::isinf(float(number));
    if (std::isnan(float(number)) || saturates) continue;
    EXPECT_EQ(Float(float(number)).bits, bits);
  }
}

TEST(Floats, EveryFiniteNumberSurvivesARoundTrip) {
  expect_round_trips<Half>();
  expect_round_trips<Bfloat16>();
  expect_round_trips<E4m3>();
  expect_round_trips<E5m2>();
}

TEST(Floats, EightBitFormatsSaturate) {
  EXPECT_EQ(float(E4m3(448.0f)), 448.0f);
  EXPECT_EQ(float(E4m3(1e6f)), 448.0f);
  EXPECT_EQ(float(E4m3(-INFINITY)), -448.0f);
  EXPECT_EQ(E4m3(448.0f).bits, 0x7e);
  EXPECT_EQ(float(E5m2(1e9f)), 57344.0f);
  EXPECT_EQ(E5m2(57344.0f).bits, 0x7b);
}

TEST(Floats, SumsAreRoundedToNearestEven) {
  EXPECT_EQ(float(Half(2048.0f) + Half(1.0f)), 2048.0f);
  EXPECT_EQ(float(Half(2048.0f) + Half(3.0f)), 2052.0f);
  EXPECT_EQ(float(Bfloat16(256.0f) + Bfloat16(1.0f)), 256.0f);
  EXPECT_EQ(float(Bfloat16(256.0f) + Bfloat16(3.0f)), 260.0f);
}

}  // namespace

}  // namespace plugfest::nccl::device
