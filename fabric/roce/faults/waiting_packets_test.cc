// DelayQueue and ReorderBuffer.
#include <gtest/gtest.h>

#include <string>

#include "fabric/roce/faults/delay_queue.h"
#include "fabric/roce/faults/reorder_buffer.h"

namespace plugfest::roce {
namespace {

struct Packet {
  std::string bytes;
};

TEST(ReorderBuffer, ReleasesPacketsAfterTheGivenNumberOfLaterPackets) {
  ReorderBuffer<Packet> buffer;
  buffer.hold({"three"}, 3);
  buffer.hold({"one"}, 1);
  auto released = buffer.release(1);
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].bytes, "one");
  EXPECT_TRUE(buffer.release(1).empty());
  EXPECT_FALSE(buffer.empty());
  EXPECT_EQ(buffer.release(5).size(), 1u);
  EXPECT_TRUE(buffer.empty());
}

TEST(DelayQueue, KeepsTheOrderOfPackets) {
  DelayQueue<Packet> queue;
  EXPECT_EQ(queue.due(), kNever);
  EXPECT_TRUE(queue.push({"first"}, 200));
  EXPECT_TRUE(queue.push({"second"}, 100));
  EXPECT_EQ(queue.due(), 200);
  EXPECT_EQ(queue.pop_front().bytes, "first");
  EXPECT_EQ(queue.due(), 200);
  EXPECT_EQ(queue.pop_front().bytes, "second");
  EXPECT_TRUE(queue.empty());
}

TEST(DelayQueue, DropsPacketsBeyondItsCapacity) {
  DelayQueue<Packet> queue;
  EXPECT_TRUE(queue.push({std::string(64 << 20, 'x')}, 1));
  EXPECT_FALSE(queue.push({"more"}, 1));
  queue.pop_front();
  EXPECT_TRUE(queue.push({"again"}, 1));
}

}  // namespace
}  // namespace plugfest::roce
