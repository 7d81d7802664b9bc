#include "harness/control/process/blocked_call.h"

#include <gtest/gtest.h>

#include <fstream>

#include "fabric/system/testing.h"

namespace plugfest::control {
namespace {

class HangPlacesTest : public ::testing::Test {
 protected:
  HangPlacesTest() { std::ofstream(library_) << "plugin"; }

  // The stack of a thread that waits in read, called by the plugin at `place`.
  static std::vector<std::string> waiting_at(const std::string& place) {
    return {"in system call read", "read (libc.so.6)", "read_all(int) at /src/" + place + " (libp.so)", "main (rank)"};
  }

  const ScratchFolder scratch_;
  const std::string library_ = scratch_ / "libp.so";
  HangPlaces places_;
};

TEST_F(HangPlacesTest, AreKnownAfterThreeHangsAtAnyPlace) {
  places_.add(waiting_at("p.c:56"), library_);
  places_.add(waiting_at("p.c:56"), library_);
  EXPECT_FALSE(places_.any_known());
  EXPECT_FALSE(places_.knows("p.c:56"));
  places_.add(waiting_at("q.c:7"), library_);
  EXPECT_TRUE(places_.any_known());
  EXPECT_TRUE(places_.knows("p.c:56"));
  EXPECT_TRUE(places_.knows("q.c:7"));
  EXPECT_FALSE(places_.knows("p.c:57"));
}

TEST_F(HangPlacesTest, AreOnlyThoseInThePluginAtWhichAThreadWaits) {
  for (int i = 0; i < HangPlaces::kHangs; ++i) {
    places_.add({}, library_);
    places_.add({"in system call read", "read (libc.so.6)", "main (rank)"}, library_);
    places_.add({"spin() at /src/p.c:9 (libp.so)", "main (rank)"}, library_);
  }
  EXPECT_FALSE(places_.any_known());
}

}  // namespace
}  // namespace plugfest::control
