// Packets that do not go at once go later, in order.
#include "fabric/roce/faults/detour.h"

#include <gtest/gtest.h>

#include <string>

namespace plugfest::roce {
namespace {

struct Parcel {
  std::string bytes;
};

TEST(Detour, HeldPacketsGoWhenLaterOnesHaveGone) {
  Detour<Parcel> detour;
  detour.hold({"three"}, 3);
  detour.hold({"one"}, 1);
  EXPECT_TRUE(detour.holds());
  auto due = detour.overtaken_by(1);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].bytes, "one");
  EXPECT_TRUE(detour.overtaken_by(1).empty());
  EXPECT_EQ(detour.overtaken_by(5).size(), 1u);
  EXPECT_FALSE(detour.holds());
}

TEST(Detour, LatePacketsKeepTheirOrder) {
  Detour<Parcel> detour;
  EXPECT_EQ(detour.due(), kNever);
  EXPECT_TRUE(detour.delay({"first"}, 200));
  EXPECT_TRUE(detour.delay({"second"}, 100));
  EXPECT_EQ(detour.due(), 200);
  EXPECT_EQ(detour.take_first().bytes, "first");
  EXPECT_EQ(detour.due(), 200);
  EXPECT_EQ(detour.take_first().bytes, "second");
  EXPECT_FALSE(detour.late());
}

TEST(Detour, ALinkHoldsNoMoreThanItsMemory) {
  Detour<Parcel> detour;
  EXPECT_TRUE(detour.delay({std::string(64 << 20, 'x')}, 1));
  EXPECT_FALSE(detour.delay({"more"}, 1));
  detour.take_first();
  EXPECT_TRUE(detour.delay({"again"}, 1));
}

}  // namespace
}  // namespace plugfest::roce
