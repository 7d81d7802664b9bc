#include "harness/bed/nic_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace plugfest::bed {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string refusal(const std::string& name, const NicOptions& options = {}) {
  try {
    make_nic_kind(name, options);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(NicKinds, AreFoundByName) {
  for (const char* name : {"roce", "loopback", "rxe", "vm", "system"}) {
    EXPECT_EQ(make_nic_kind(name)->name(), name);
    EXPECT_THAT(describe_nic_kinds(), HasSubstr(std::string(name) + ", "));
  }
  EXPECT_EQ(default_nic_kind()->name(), "roce");
}

TEST(NicKinds, UnknownNameListsAllKinds) {
  EXPECT_EQ(refusal("mlx5"), "--nic \"mlx5\": there are roce, loopback, rxe, vm and system");
}

TEST(NicKinds, RefuseOptionsOfOtherKinds) {
  EXPECT_EQ(refusal("roce", {.kernel = "/boot"}), "--kernel: only --nic vm boots one");
  EXPECT_EQ(refusal("vm", {.kernel = "/boot"}), "accepted");
  EXPECT_EQ(refusal("vm", {.allow_host_changes = true}), "--allow-host-changes: only --nic rxe makes any");
  EXPECT_EQ(refusal("rxe", {.allow_host_changes = true}), "accepted");
}

TEST(NicKinds, OnlyTheNicInUserSpaceOnNamespacesSupportsFaultsAndBackgroundFabrics) {
  for (const char* name : {"loopback", "rxe", "vm", "system"}) {
    EXPECT_FALSE(make_nic_kind(name)->support().faults) << name;
    EXPECT_FALSE(make_nic_kind(name)->support().background_fabric) << name;
  }
  EXPECT_TRUE(default_nic_kind()->support().faults);
  EXPECT_TRUE(default_nic_kind()->support().background_fabric);
}

TEST(LoopbackNic, RefusesTopologiesWithRouters) {
  try {
    make_nic_kind("loopback")->check_topology(topology::named("fat-tree:2"));
    FAIL() << "accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), StartsWith("--nic loopback: edge1 is a router"));
  }
}

}  // namespace
}  // namespace plugfest::bed
