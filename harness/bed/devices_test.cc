#include "harness/bed/devices.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/topology/graph.h"
#include "harness/bed/nic_kind.h"
#include "test_paths.h"

namespace plugfest::bed {
namespace {

using testing::ElementsAre;

// "a.eth0 foo1 trial" for each rank. `words`: see renamed_devices.cc.
std::vector<std::string> matches(TestBed bed, const std::string& words, const std::vector<DeviceChoice>& choices = {},
                                 double call_seconds = 10) {
  control::Subject subject = bed.subject(PLUGFEST_RENAMED_DEVICES, 0);
  subject.environment.emplace_back("RENAMED_DEVICES", words);
  control::Session session(bed.launcher(), subject, {.call_seconds = call_seconds});
  std::vector<std::string> lines;
  for (const DeviceMatch& match : match_devices(session, bed, choices, call_seconds))
    lines.push_back(fmt::format("{} {} {} {}", match.rank, match.device.index, match.device.name, match.found_by));
  return lines;
}

TestBed bed_of(const std::string& topology) { return roce_test_bed(topology::named(topology), false); }

TEST(Devices, AreMatchedByTrialConnectionsIfNamesDiffer) {
  EXPECT_THAT(matches(bed_of("triangle"), ""),
              ElementsAre("a.eth0 0 foo0 trial", "a.eth1 1 foo1 trial", "b.eth0 0 foo0 trial", "b.eth1 1 foo1 trial",
                          "c.eth0 0 foo0 trial", "c.eth1 1 foo1 trial"));
}

TEST(Devices, TrialConnectionsFindAnotherOrder) {
  EXPECT_THAT(matches(bed_of("pair:links=2"), "reversed,same"),
              ElementsAre("a.eth0 1 foo trial", "a.eth1 0 foo trial", "b.eth0 1 foo trial", "b.eth1 0 foo trial"));
}

TEST(Devices, AreMatchedByPciPathsIfNamesDiffer) {
  EXPECT_THAT(
      matches(bed_of("pair:links=2"), "pci,reversed"),
      ElementsAre("a.eth0 1 foo1 pciPath", "a.eth1 0 foo0 pciPath", "b.eth0 1 foo1 pciPath", "b.eth1 0 foo0 pciPath"));
}

TEST(Devices, AreMatchedAsTheUserChooses) {
  EXPECT_THAT(matches(bed_of("pair:links=2"), "pci,reversed",
                      {parse_device_choice("foo0=a/eth0"), parse_device_choice("1=b/eth1")}),
              ElementsAre("a.eth0 0 foo0 --device", "a.eth1 0 foo0 pciPath", "b.eth0 1 foo1 pciPath",
                          "b.eth1 1 foo1 --device"));
}

TEST(Devices, TheOnlyDeviceNeedsNoTrial) {
  EXPECT_THAT(matches(bed_of("pair"), "deaf"), ElementsAre("a.eth0 0 foo0 name", "b.eth0 0 foo0 name"));
}

TEST(Devices, KeepTheirOrderIfNothingConnects) {
  EXPECT_THAT(matches(bed_of("pair:links=2"), "deaf", {}, 0.5),
              ElementsAre("a.eth0 0 foo0 order", "a.eth1 1 foo1 order", "b.eth0 0 foo0 order", "b.eth1 1 foo1 order"));
}

TEST(Devices, NamedAfterAnotherInterfaceAreNotMatchedByOrder) {
  EXPECT_THAT(matches(bed_of("pair:links=2"), "deaf,eth0", {}, 0.5),
              ElementsAre("a.eth0 0 eth0 name", "b.eth0 0 eth0 name"));
}

TEST(Devices, HostsThatShareANamespaceAreMatchedByTrial) {
  const auto nic = make_nic_kind("loopback");
  EXPECT_THAT(matches(nic->build(topology::named("pair:links=2"), false), ""),
              ElementsAre("a.eth0 0 foo0 trial", "a.eth1 1 foo1 trial", "b.eth0 0 foo0 trial", "b.eth1 1 foo1 trial"));
}

TEST(Devices, InterfacesOutsideOfPathsAreMatchedToo) {
  EXPECT_THAT(matches(bed_of("star:3"), "pci"),
              ElementsAre("h1.eth0 0 foo0 name", "h2.eth0 0 foo0 name", "h3.eth0 0 foo0 name"));
}

}  // namespace
}  // namespace plugfest::bed
