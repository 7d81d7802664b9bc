// Kernels without a compiler front: functions that call plugfest_kernel.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "fabric/system/process.h"
#include "harness/kernels/run/fault.h"
#include "harness/kernels/run/grid.h"

namespace plugfest::kernels {
namespace {

Settings settings;

}  // namespace
}  // namespace plugfest::kernels

// In user programs, the stand-ins for CUDA contain this function.
int plugfest_kernel_launch(const plugfest::kernels::Launch* launch) {
  using plugfest::kernels::Grid;
  const int error = Grid::check(*launch);
  if (error == 0) Grid(*launch, plugfest::kernels::settings).run();
  launch->destroy(launch->state);
  return error;
}

namespace plugfest::kernels {
namespace {

constexpr Place kHere = {"kernel.cu", 7};

template <typename... P, typename... A>
int run(void (*kernel)(P...), Index grid, Index block, A... arguments) {
  return launch("test", kernel, grid, block, 0, nullptr, arguments...);
}

unsigned thread() { return plugfest_kernel_thread_index()->x; }
unsigned block() { return plugfest_kernel_block_index()->x; }
void sync() { plugfest_kernel_barrier(0, 0, kHere); }

std::uint64_t load(const std::atomic<std::uint64_t>& word) {
  const std::uint64_t value = word.load();
  plugfest_kernel_loaded(&word, sizeof(word), value);
  return value;
}

class Kernels : public testing::Test {
 protected:
  ~Kernels() override { settings = {}; }
};

TEST_F(Kernels, RunEachThreadOnceWithItsIndices) {
  std::vector<int> runs(2 * 3 * 4 * 5 * 6 * 7);
  run(
      +[](int* counts) {
        const Index thread = *plugfest_kernel_thread_index(), block = *plugfest_kernel_block_index();
        const Index threads = *plugfest_kernel_block_size(), blocks = *plugfest_kernel_grid_size();
        const unsigned in_block = (thread.z * threads.y + thread.y) * threads.x + thread.x;
        const unsigned number = (block.z * blocks.y + block.y) * blocks.x + block.x;
        ++counts[number * threads.x * threads.y * threads.z + in_block];
      },
      {2, 3, 4}, {5, 6, 7}, runs.data());
  EXPECT_THAT(runs, testing::Each(1));
}

TEST_F(Kernels, RunAllBlocksIfNotAllFitAtOnce) {
  std::atomic<int> blocks = 0;
  run(
      +[](std::atomic<int>* count) { *count += thread() == 0 ? 1 : 0; }, {100, 1, 1}, {1024, 1, 1}, &blocks);
  EXPECT_EQ(blocks, 100);
}

TEST_F(Kernels, ShareMemoryAndBarriersInABlock) {
  std::vector<unsigned> sums(4);
  run(
      +[](unsigned* results) {
        static thread_local std::array<unsigned, 256> shared;
        shared[thread()] = thread() * (block() + 1);
        for (unsigned half = 128; half > 0; half /= 2) {
          sync();
          if (thread() < half) shared[thread()] += shared[thread() + half];
        }
        if (thread() == 0) results[block()] = shared[0];
      },
      {4, 1, 1}, {256, 1, 1}, sums.data());
  EXPECT_THAT(sums, testing::ElementsAre(32640, 65280, 97920, 130560));
}

TEST_F(Kernels, HaveDynamicSharedMemory) {
  int wrong = 0;
  launch(
      "test",
      +[](int* count) {
        auto* const words = static_cast<unsigned*>(plugfest_kernel_dynamic_shared());
        words[thread()] = thread();
        sync();
        if (words[31 - thread()] != 31 - thread() || reinterpret_cast<std::uintptr_t>(words) % 1024 != 0) ++*count;
      },
      {1, 1, 1}, {32, 1, 1}, 128, nullptr, &wrong);
  EXPECT_EQ(wrong, 0);
}

TEST_F(Kernels, ExchangeValuesInAWarpAndInPartsOfIt) {
  std::vector<std::uint64_t> sums(40);
  run(
      +[](std::uint64_t* results) {
        const unsigned lane = plugfest_kernel_lane();
        std::array<std::uint64_t, kWarpSize> all;
        // The lower and the upper half of the warp exchange apart; lanes 8 to 31 of the second warp do not exist.
        const std::uint32_t mask = lane < 16 ? 0xffff : 0xffff0000;
        plugfest_kernel_exchange(mask, thread(), all.data(), kHere);
        results[thread()] = std::accumulate(all.begin(), all.end(), std::uint64_t{0});
      },
      {1, 1, 1}, {40, 1, 1}, sums.data());
  for (unsigned i = 0; i < 40; ++i) EXPECT_EQ(sums[i], i < 16 ? 120U : i < 32 ? 376U : 284U) << i;
}

TEST_F(Kernels, DoNotWaitForThreadsThatHaveEnded) {
  int after = 0;
  run(
      +[](int* count) {
        if (thread() % 2 == 1) return;
        sync();
        std::array<std::uint64_t, kWarpSize> all;
        EXPECT_EQ(plugfest_kernel_exchange(0xffffffff, 1, all.data(), kHere), 0x55555555U);
        ++*count;
      },
      {1, 1, 1}, {64, 1, 1}, &after);
  EXPECT_EQ(after, 32);
}

TEST_F(Kernels, WaitForWordsThatOtherThreadsWrite) {
  // Each thread waits for the one before it, through blocks and through the host.
  std::atomic<std::uint64_t> word = 0;
  std::thread host([&] {
    while (word != 64) std::this_thread::yield();
    word = 65;
  });
  run(
      +[](std::atomic<std::uint64_t>* turn) {
        // Blocks 2 and 1 count to 64, the host goes on, then block 0; in each, the last thread is the first one.
        const std::uint64_t mine = 31 - thread() + (block() == 0 ? 65 : block() == 1 ? 32 : 0);
        while (load(*turn) != mine) {
        }
        ++*turn;
      },
      {3, 1, 1}, {32, 1, 1}, &word);
  host.join();
  EXPECT_EQ(word, 97U);
}

TEST_F(Kernels, LetOthersRunWhileTheyReadManyWords) {
  static std::array<std::atomic<std::uint64_t>, 100> words;
  for (auto& word : words) word = 0;
  run(
      +[] {
        if (thread() == 1) {
          words[99] = 1;
          return;
        }
        for (std::uint64_t sum = 0; sum == 0;)
          for (const auto& word : words) sum += load(word);
      },
      {1, 1, 1}, {2, 1, 1});
}

TEST_F(Kernels, ShowOthersTheirStoresAtAReleaseOrAtTheirEnd) {
  settings.weak = true;
  std::array<std::uint64_t, 2> words{};
  shared_memory().add(words.data(), sizeof(words));
  static std::vector<std::uint64_t> seen;
  seen.clear();
  run(
      +[](std::uint64_t* both) {
        plugfest_kernel_before_store(&both[thread()], 8);
        both[thread()] = 5;
        sync();
        if (thread() == 0) seen = {both[0], both[1]};  // as another rank would, without before_load
        if (thread() == 0) plugfest_kernel_release();
        if (thread() == 0) seen.insert(seen.end(), {both[0], both[1]});
        sync();
        plugfest_kernel_before_store(&both[thread()], 8);
        both[thread()] = 6;
      },
      {1, 1, 1}, {2, 1, 1}, words.data());
  shared_memory().remove(words.data());
  EXPECT_THAT(seen, testing::ElementsAre(0, 0, 5, 5));
  EXPECT_THAT(words, testing::ElementsAre(6, 6));
}

TEST_F(Kernels, HoldBackTheirPutsUntilTheirThreadsWait) {
  settings.weak = true;
  alignas(64) std::array<std::uint64_t, 8> put{};
  static std::uint64_t before;
  run(
      +[](std::uint64_t* words) {
        plugfest_kernel_post(words, 1);
        before = *words;  // as NCCL's proxy would
        sync();
        while (load(reinterpret_cast<const std::atomic<std::uint64_t>&>(*words)) == 0) continue;
      },
      {1, 1, 1}, {1, 1, 1}, put.data());
  EXPECT_EQ(before, 0U);
  EXPECT_EQ(put[0], 1U);
  put = {};
  run(
      +[](std::uint64_t* words) { plugfest_kernel_post(words, 1); }, {1, 1, 1}, {1, 1, 1}, put.data());
  EXPECT_EQ(put[0], 1U);
}

std::vector<unsigned> order_of_threads(std::uint64_t seed) {
  settings.seed = seed;
  static std::vector<unsigned> order;
  order.clear();
  run(+[] { order.push_back(thread()); }, {1, 1, 1}, {64, 1, 1});
  return order;
}

TEST_F(Kernels, RunTheirThreadsInTheOrderOfTheSeed) {
  const std::vector<unsigned> first = order_of_threads(1), again = order_of_threads(1), other = order_of_threads(2);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 64U);
}

TEST_F(Kernels, AreRefusedIfNoGpuRunsThem) {
  void (*const kernel)() = [] {};
  EXPECT_EQ(run(kernel, {1, 1, 1}, {1024, 1, 1}), 0);
  EXPECT_EQ(run(kernel, {1, 1, 1}, {1025, 1, 1}), 9);
  EXPECT_EQ(run(kernel, {1, 1, 1}, {512, 2, 2}), 9);
  EXPECT_EQ(run(kernel, {0, 1, 1}, {1, 1, 1}), 9);
  EXPECT_EQ(run(kernel, {1, 65'536, 1}, {1, 1, 1}), 9);
  EXPECT_EQ(launch("test", kernel, {1, 1, 1}, {1, 1, 1}, 1 << 20, nullptr), 9);
}

using KernelsDeathTest = Kernels;

template <typename... P, typename... A>
void expect_fault(const testing::Matcher<const std::string&>& text, void (*kernel)(P...), Index threads,
                  A... arguments) {
  EXPECT_EXIT(run(kernel, {2, 1, 1}, threads, arguments...), testing::ExitedWithCode(kFaultCode), text);
}

TEST_F(KernelsDeathTest, NamesThreadsThatWaitAtDifferentBarriers) {
  expect_fault(
      testing::HasSubstr("block (0,0,0), thread (32,0,0): threads of a block wait at different barriers: 32 at a.cu:1, "
                         "another one at b.cu:2"),
      +[] {
        if (block() == 0) plugfest_kernel_barrier(0, 0, thread() < 32 ? Place{"a.cu", 1} : Place{"b.cu", 2});
      },
      {64, 1, 1});
}

TEST_F(KernelsDeathTest, NamesThreadsThatWaitForEachOther) {
  expect_fault(testing::HasSubstr("kernel test hangs: all threads of a block wait for each other\n"
                                  "  block (0,0,0), thread (0,0,0) waits for barrier 0 (32 threads do)\n"),
               +[] {
                 std::array<std::uint64_t, kWarpSize> all;
                 if (block() == 1) return;
                 if (thread() < 32)
                   sync();
                 else
                   plugfest_kernel_exchange(thread() == 32 ? 3 : 7, 0, all.data(), kHere);
               },
               {35, 1, 1});
}

TEST_F(KernelsDeathTest, NamesTheWordThatNeverChangesAndTheLineOfTheSource) {
  settings.limit = std::chrono::milliseconds(0);
  static std::atomic<std::uint64_t> word = 41;
  expect_fault(
      testing::ContainsRegex("thread \\(0,0,0\\) waits for a value other than 41 at 0x[0-9a-f]+( \\(2 threads do\\))?\n"
                             "    in .*run_test.cc:[0-9]+\n"),
      +[] {
        while (thread() == 0 && load(word) != 42) {
        }
        sync();
      },
      {64, 1, 1});
}

TEST_F(KernelsDeathTest, NamesTheSignalThatNeverComes) {
  settings.limit = std::chrono::milliseconds(0);
  static std::atomic<std::uint64_t> word = 41;
  expect_fault(testing::HasSubstr("thread (0,0,0) waits for signal 3 of context 1: it is 41, wanted 42"),
               +[] {
                 const Expects expects("signal {} of context {}", 3, 1, 42);
                 { const Expects inner("counter {} of context {}", 0, 0, 1); }
                 while (load(word) != 42) continue;
               },
               {1, 1, 1});
}

TEST_F(KernelsDeathTest, EndsBeforeItsTimeIfAnotherRankHasFailed) {
  Pipe peers = make_pipe();
  peers.write_end.close();
  settings.peers = peers.read_end.get();
  static std::atomic<std::uint64_t> word = 0;
  expect_fault(testing::HasSubstr("kernel test hangs: another rank has failed\n  block ("),
               +[] {
                 while (load(word) == 0) continue;
               },
               {1, 1, 1});
}

TEST_F(KernelsDeathTest, NamesALaneOutsideOfItsMask) {
  expect_fault(testing::HasSubstr("lane 1 is not in its own mask 0x1 (kernel.cu:7)"),
               +[] {
                 std::array<std::uint64_t, kWarpSize> all;
                 plugfest_kernel_exchange(1, 0, all.data(), kHere);
               },
               {2, 1, 1});
}

TEST_F(KernelsDeathTest, NamesBarriersThatDoNotExist) {
  expect_fault(testing::HasSubstr("barrier 16: a block has barriers 0 to 15 (kernel.cu:7)"),
               +[] { plugfest_kernel_barrier(16, 0, kHere); }, {1, 1, 1});
}

TEST_F(KernelsDeathTest, NamesExceptions) {
  expect_fault(testing::HasSubstr("an exception left the kernel: vector::_M_range_check"),
               +[] { std::vector<int>().at(1); }, {1, 1, 1});
}

TEST_F(KernelsDeathTest, NamesFunctionsOfKernelsThatTheHostCalls) {
  EXPECT_EXIT(plugfest_kernel_lane(), testing::ExitedWithCode(kFaultCode), "laneid: called outside a kernel");
}

TEST(Settings, ComeFromTheEnvironment) {
  ::setenv("PLUGFEST_KERNEL_SEED", "7", 1);
  ::setenv("PLUGFEST_KERNEL_TIMEOUT", "x", 1);
  EXPECT_THROW(Settings::from_environment(), std::invalid_argument);
  ::setenv("PLUGFEST_KERNEL_TIMEOUT", "3", 1);
  ::setenv("PLUGFEST_KERNEL_PEERS", "5", 1);
  EXPECT_EQ(Settings::from_environment().seed, 7U);
  EXPECT_EQ(Settings::from_environment().limit, std::chrono::seconds(3));
  EXPECT_EQ(Settings::from_environment().peers, 5);
  ::unsetenv("PLUGFEST_KERNEL_SEED");
  ::unsetenv("PLUGFEST_KERNEL_TIMEOUT");
  ::unsetenv("PLUGFEST_KERNEL_PEERS");
}

}  // namespace
}  // namespace plugfest::kernels
