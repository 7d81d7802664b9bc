// The tests of pyverbs, rdma-core's Python interface, on one device.
#include <gtest/gtest.h>

#include "fabric/roce/verbs/testing/two_hosts.h"
#include "test_paths.h"

namespace plugfest::roce {
namespace {

constexpr int kNotInstalled = 77;

TEST(Pyverbs, PassesItsTests) {
  PLUGFEST_NEEDS_PROGRAM("/usr/bin/python3");
  TwoHosts hosts;
  const netns::Finished tests =
      hosts.start("a", {"timeout", "200", "/usr/bin/python3", "-B", PLUGFEST_RUN_PYVERBS, "roce_eth0"}).wait();
  if (tests.exit_code == kNotInstalled) GTEST_SKIP() << "needs the tests of the package python3-pyverbs";
  EXPECT_EQ(tests.exit_code, 0) << tests.output;
}

}  // namespace
}  // namespace plugfest::roce
