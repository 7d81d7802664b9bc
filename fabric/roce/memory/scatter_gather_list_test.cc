#include "fabric/roce/memory/scatter_gather_list.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace plugfest::roce {
namespace {

TEST(OrderedCopy, CopiesEveryByteAtEveryAlignment) {
  std::vector<std::byte> source(600), target(600);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i % 251 + 1);
  for (std::size_t offset = 0; offset < 128; ++offset) {
    for (const std::size_t size : {0u, 1u, 7u, 8u, 9u, 120u, 127u, 128u, 129u, 136u, 255u, 256u, 400u}) {
      std::ranges::fill(target, std::byte{0});
      copy_in_order(target.data() + offset, std::span(source).subspan(3, size));
      ASSERT_TRUE(std::ranges::equal(std::span(target).subspan(offset, size), std::span(source).subspan(3, size)))
          << size << " bytes at " << offset;
      ASSERT_EQ(std::ranges::count(target, std::byte{0}), static_cast<std::ptrdiff_t>(target.size() - size));
    }
  }
}

// The upper half of each word is the flag of its lower half. With memcpy this fails in nearly every round on a
// processor with fast short `rep movsb`.
TEST(OrderedCopy, AReaderThatSeesTheFlagOfAWordSeesItsData) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a reader of memory that is written meanwhile is a data race on purpose";
#endif
  constexpr std::size_t kPage = 4096, kWords = kPage / 8;
  constexpr std::uint32_t kRounds = 2000;
  constexpr int kLoads = 1000;
  struct alignas(kPage) Memory {
    std::array<std::byte, 3 * kPage> source;
    std::array<std::uint64_t, kWords> target;
  };
  const auto memory = std::make_unique<Memory>();
  // glibc's memcpy aligns such a source, not the target, and writes the first bytes, up to the alignment, last.
  const std::span<std::byte> source = std::span(memory->source).subspan(kPage - 4, kPage);
  std::atomic<std::uint32_t> seen{0};
  std::uint32_t torn = 0;
  std::thread reader([&] {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      const std::size_t watched = round % 4 == 0 ? round / 4 % kWords : 0;
      const auto load = [&](std::size_t word) {
        return std::atomic_ref(memory->target[word]).load(std::memory_order_acquire);
      };
      std::uint64_t value = 0;
      for (int i = 0; (value = load(watched)) >> 32 != round; ++i)
        if (i % kLoads == kLoads - 1) ::sched_yield();
      if (static_cast<std::uint32_t>(value) != round) ++torn;
      while (load(kWords - 1) >> 32 != round) ::sched_yield();
      seen = round;
    }
  });
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    for (std::size_t at = 0; at < kPage; at += sizeof(round)) std::memcpy(&source[at], &round, sizeof(round));
    copy_in_order(reinterpret_cast<std::byte*>(memory->target.data()), source);
    while (seen != round) ::sched_yield();
  }
  reader.join();
  EXPECT_EQ(torn, 0u);
}

}  // namespace
}  // namespace plugfest::roce
