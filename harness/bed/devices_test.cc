#include "harness/bed/devices.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "fabric/system/testing.h"
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

TEST(DeviceChoices, AreParsed) {
  EXPECT_EQ(parse_device_choice("foo=0=a/eth0").text(), "foo=0=a/eth0");
  EXPECT_EQ(parse_device_choice("foo=0=a/eth0").device, "foo=0");
  for (const char* text : {"foo0", "foo0=a", "=a/eth0", "foo0=/eth0", "foo0=a/", "a/eth0", ""}) {
    EXPECT_EQ(error_message([&] { parse_device_choice(text); }),
              fmt::format("--device \"{}\": expected NAME=HOST/INTERFACE, as in foo0=a/eth0", text));
  }
}

TEST(DeviceChoices, NameInterfacesOfTheRun) {
  const std::set<std::string> interfaces = {"a.eth0", "a.eth1", "b.eth0", "b.eth1", "c.eth0", "c.eth1"};
  const auto refusal = [&](const std::vector<std::string>& texts) {
    std::vector<DeviceChoice> choices;
    for (const std::string& text : texts) choices.push_back(parse_device_choice(text));
    return error_message([&] { check_device_choices(choices, interfaces); });
  };
  EXPECT_EQ(refusal({"foo0=a/eth0", "foo0=b/eth0", "foo1=a/eth1"}), "no error");
  EXPECT_EQ(refusal({"foo0=d/eth0"}), "--device foo0=d/eth0: no rule runs on host d: did you mean a?");
  EXPECT_EQ(refusal({"foo0=node/eth0"}), "--device foo0=node/eth0: no rule runs on host node: expected one of a, b, c");
  EXPECT_EQ(refusal({"foo0=a/eth2"}),
            "--device foo0=a/eth2: no rule uses interface eth2 of host a: did you mean eth0?");
  EXPECT_EQ(refusal({"foo0=a/eth0", "foo1=a/eth0"}),
            "--device foo1=a/eth0: a/eth0 is already foo0: leave out one of them");
}

TEST(DeviceChoices, NameDevicesOfThePlugin) {
  EXPECT_EQ(error_message([] { matches(bed_of("pair"), "", {parse_device_choice("fooO=a/eth0")}); }),
            "--device fooO=a/eth0: the plugin has no device fooO on host a: did you mean foo0?");
  EXPECT_EQ(error_message([] { matches(bed_of("pair"), "", {parse_device_choice("7=a/eth0")}); }),
            "--device 7=a/eth0: the plugin has no device 7 on host a: expected one of foo0");
}

}  // namespace
}  // namespace plugfest::bed
