#include "harness/kernels/run/store_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace plugfest::kernels {
namespace {

class StoreBufferTest : public testing::Test {
 protected:
  StoreBufferTest() { shared_memory().add(words_.data(), sizeof(words_)); }
  ~StoreBufferTest() override { shared_memory().remove(words_.data()); }

  template <typename T>
  void store(T* address, T value) {
    buffer_.before_store(address, sizeof(T));
    *address = value;
  }
  template <typename T>
  T load(const T* address) {
    buffer_.before_load(address, sizeof(T));
    return *address;
  }
  /// Ends the wait for the last store: a load of another word.
  void go_on() {
    const int other = 0;
    load(&other);
  }

  alignas(8) std::array<std::uint32_t, 64> words_{};
  StoreBuffer buffer_{1};
};

TEST_F(StoreBufferTest, HoldsBackAStoreUntilARelease) {
  store(&words_[3], 7U);
  go_on();
  EXPECT_EQ(words_[3], 0U);
  buffer_.release();
  EXPECT_EQ(words_[3], 7U);
}

TEST_F(StoreBufferTest, ShowsTheBlockItsOwnStores) {
  store(&words_[3], 7U);
  store(&words_[4], 8U);
  EXPECT_EQ(load(&words_[3]), 7U);
  EXPECT_EQ(load(reinterpret_cast<std::uint64_t*>(&words_[4])), 8U);
}

TEST_F(StoreBufferTest, KeepsTheLastOfSeveralStores) {
  store(&words_[3], 7U);
  store(&words_[3], 8U);
  store(reinterpret_cast<std::uint8_t*>(&words_[3]) + 3, std::uint8_t{1});
  buffer_.release();
  EXPECT_EQ(words_[3], 0x01000008U);
}

TEST_F(StoreBufferTest, KeepsWhatOthersStoreBesideIt) {
  store(&words_[2], 7U);
  go_on();
  words_[3] = 9;  // another block
  buffer_.release();
  EXPECT_THAT(std::vector(words_.begin() + 2, words_.begin() + 4), testing::ElementsAre(7, 9));
}

TEST_F(StoreBufferTest, LeavesOtherMemoryAlone) {
  int private_word = 0;
  store(&private_word, 5);
  go_on();
  EXPECT_EQ(private_word, 5);
}

TEST_F(StoreBufferTest, MakesStoresVisibleInAnotherOrder) {
  bool another_order = false;
  for (std::uint32_t i = 1; i <= 10'000; ++i) {
    store(&words_[i % 64], i);
    go_on();
    // The words in the order in which they were stored.
    std::vector<std::uint32_t> seen;
    for (std::uint32_t j = i + 1; j <= i + 64; ++j) seen.push_back(words_[j % 64]);
    another_order = another_order || !std::is_sorted(seen.begin(), seen.end());
  }
  EXPECT_TRUE(another_order);
}

TEST_F(StoreBufferTest, HoldsBackUnalignedStoresOfSixteenBytes) {
  struct [[gnu::packed]] Sixteen {
    std::array<std::uint8_t, 16> bytes;
  } value{};
  value.bytes.fill(0xab);
  store(reinterpret_cast<Sixteen*>(reinterpret_cast<std::byte*>(words_.data()) + 5), value);
  go_on();
  EXPECT_THAT(words_, testing::Each(0U));
  buffer_.release();
  EXPECT_EQ(words_[1], 0xababab00U);
  EXPECT_EQ(words_[5], 0x000000abU);
}

}  // namespace
}  // namespace plugfest::kernels
