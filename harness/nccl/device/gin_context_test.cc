// The descriptors that the CPU in place of a kernel writes for NCCL's proxy, word by word.
#include "harness/nccl/device/gin_context.h"

#include <gtest/gtest.h>

#include <vector>

namespace plugfest::nccl::device {
namespace {

class GinContextTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kLength = 4;

  GinContextTest() {
    comm_.gin_contexts = 2;
    comm_.gin_handles[1] = &queues_;
    comm_.first_signal = 0x100;
    source_.gin_offset = 2;
    source_.gin_handles[1] = reinterpret_cast<void*>(0x1000);
    target_.gin_handles[1] = reinterpret_cast<void*>(0x2000);
  }

  std::vector<v2_28::GinDescriptor> descriptors_ = std::vector<v2_28::GinDescriptor>(2 * kLength);
  std::uint32_t produced_[2] = {}, consumed_[2] = {};
  std::vector<std::uint64_t> signals_ = std::vector<std::uint64_t>(0x110);
  v2_28::GinQueues queues_{.ranks = 2,
                           .length = kLength,
                           .descriptors = descriptors_.data(),
                           .produced = produced_,
                           .consumed = consumed_,
                           .counters = nullptr,
                           .signals = signals_.data()};
  v2_28::Window source_{}, target_{};
  v2_28::DeviceComm comm_{};
};

TEST_F(GinContextTest, WritesThePlacesTheSizeAndTheSignalOfAPut) {
  GinContext context(comm_, 1);
  ASSERT_TRUE(context.put(1, {&target_, 0x30}, {&source_, 0x50}, 0x700, 5));
  const v2_28::GinDescriptor& words = descriptors_[kLength];  // the first one of rank 1
  EXPECT_EQ(words[0], 0x700u << 7 | 9 << 1 | 1) << "the size, the operations put and increment, and ready";
  EXPECT_EQ(words[1], 0x2050u << 1 | 1) << "the window begins at the third page of its registration";
  EXPECT_EQ(words[2], 0x1000u << 1 | 1);
  EXPECT_EQ(words[3], 0x30u << 1 | 1);
  EXPECT_EQ(words[4], 0x2000u << 1 | 1);
  EXPECT_EQ(words[5], std::uint64_t{1} << 40 | std::uint64_t{0x105} << 24 | 1) << "add 1 to signal 0x105";
  EXPECT_EQ(words[6], 1u);
  EXPECT_EQ(words[7], 1u);
  EXPECT_EQ(produced_[0], 0u);
  EXPECT_EQ(produced_[1], 1u);
}

TEST_F(GinContextTest, PutsNothingIntoAFullQueue) {
  GinContext context(comm_, 1);
  for (std::uint32_t i = 0; i < kLength; ++i) EXPECT_TRUE(context.signal(0, 1));
  EXPECT_FALSE(context.signal(0, 1));
  EXPECT_TRUE(context.signal(1, 1)) << "each rank has a queue";
  consumed_[0] = 1;
  EXPECT_TRUE(context.signal(0, 1));
  EXPECT_EQ(produced_[0], kLength + 1);
}

TEST_F(GinContextTest, IsFlushedOnceAllDescriptorsAreConsumedAlsoWhenTheirNumbersWrap) {
  produced_[0] = consumed_[0] = 0xffffffff;
  GinContext context(comm_, 1);
  EXPECT_TRUE(context.is_flushed(0));
  ASSERT_TRUE(context.signal(0, 1));
  EXPECT_FALSE(context.is_flushed(0));
  consumed_[0] = 0;
  EXPECT_TRUE(context.is_flushed(0));
}

TEST_F(GinContextTest, ReadsTheSignalsOfItsCommunicator) {
  signals_[0x103] = 7;
  EXPECT_EQ(GinContext(comm_, 1).read_signal(3), 7u);
}

}  // namespace
}  // namespace plugfest::nccl::device
