#include "harness/bed/device_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/system/testing.h"

namespace plugfest::bed {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A plugin whose devices have these names on each rank's host.
DeviceTable table_of(const std::map<std::string, std::vector<std::string>>& names_by_rank) {
  DeviceTable table;
  for (const auto& [rank, names] : names_by_rank) {
    std::vector<control::Properties> devices(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) devices[i].name = names[i];
    table.add(rank, devices);
  }
  return table;
}

// "a.eth0 1 foo1 order" for each matched rank.
std::vector<std::string> lines_of(const DeviceTable& table) {
  std::vector<std::string> lines;
  for (const DeviceMatch& match : table.matches())
    lines.push_back(fmt::format("{} {} {} {}", match.rank, match.device.index, match.device.name, match.found_by));
  return lines;
}

TEST(DeviceTable, MatchesNamesThatContainTheInterface) {
  DeviceTable table = table_of({{"a.eth0", {"roce_eth1", "roce_eth0"}}, {"a.eth1", {"roce_eth1", "roce_eth0"}}});
  table.match_by_name();
  EXPECT_THAT(lines_of(table), ElementsAre("a.eth0 1 roce_eth0 name", "a.eth1 0 roce_eth1 name"));
  EXPECT_THAT(table.unmatched(), IsEmpty());
}

TEST(DeviceTable, MatchesOtherNamesByTheOrderOfTheInterfaces) {
  const std::vector<std::string> names = {"foo0", "foo1", "foo2"};
  DeviceTable table = table_of({{"a.eth10", names}, {"a.eth2", names}, {"a.eth0", names}, {"b.eth0", names}});
  table.match_by_name();
  table.match_by_order();
  EXPECT_THAT(lines_of(table),
              ElementsAre("a.eth0 0 foo0 order", "a.eth10 2 foo2 order", "a.eth2 1 foo1 order", "b.eth0 0 foo0 order"));
}

TEST(DeviceTable, GivesNoInterfaceTheDeviceOfAnother) {
  const std::vector<std::string> names = {"roce_eth1"};
  DeviceTable table = table_of({{"a.eth0", names}, {"a.eth1", names}});
  table.match_by_name();
  table.match_by_order();
  EXPECT_THAT(lines_of(table), ElementsAre("a.eth1 0 roce_eth1 name"));
  EXPECT_THAT(table.unmatched(), ElementsAre("a.eth0"));
}

TEST(DeviceTable, CandidatesBeginAtThePositionOfTheInterfaceAndAreFree) {
  const std::vector<std::string> names = {"foo0", "foo1", "foo2"};
  DeviceTable table = table_of({{"a.eth0", names}, {"a.eth1", names}, {"b.eth0", names}});
  EXPECT_THAT(table.candidates("a.eth1"), ElementsAre(1, 0, 2));
  table.match("a.eth0", 1, "trial");
  EXPECT_THAT(table.candidates("a.eth0"), ElementsAre(1));
  EXPECT_THAT(table.candidates("a.eth1"), ElementsAre(0, 2));
  EXPECT_THAT(table.candidates("b.eth0"), ElementsAre(0, 1, 2));
}

TEST(DeviceTable, KeepsTheFirstMatchOfARank) {
  DeviceTable table = table_of({{"a.eth0", {"foo0", "foo1"}}});
  table.choose(parse_device_choice("foo1=a/eth0"));
  table.match("a.eth0", 0, "trial");
  table.match_by_order();
  EXPECT_THAT(lines_of(table), ElementsAre("a.eth0 1 foo1 --device"));
}

TEST(DeviceTable, TakesTheUsersChoiceByNameOrIndex) {
  const std::vector<std::string> names = {"foo0", "foo1", "0"};
  DeviceTable table = table_of({{"a.eth0", names}, {"a.eth1", names}, {"a.eth2", names}});
  for (const char* choice : {"foo1=a/eth0", "1=a/eth1", "0=a/eth2"}) table.choose(parse_device_choice(choice));
  EXPECT_THAT(lines_of(table), ElementsAre("a.eth0 1 foo1 --device", "a.eth1 1 foo1 --device", "a.eth2 2 0 --device"));
}

TEST(DeviceTable, RefusesChoicesThatThePluginDoesNotHave) {
  DeviceTable table = table_of({{"a.eth0", {"foo0"}}});
  const auto refusal = [&](const char* choice) {
    return error_message([&] { table.choose(parse_device_choice(choice)); });
  };
  EXPECT_EQ(refusal("fooO=a/eth0"),
            "--device fooO=a/eth0: the plugin has no device fooO on host a: did you mean foo0?");
  EXPECT_EQ(refusal("1=a/eth0"), "--device 1=a/eth0: the plugin has no device 1 on host a: expected one of foo0");
  EXPECT_EQ(refusal("99999=a/eth0"),
            "--device 99999=a/eth0: the plugin has no device 99999 on host a: expected one of foo0");
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

}  // namespace
}  // namespace plugfest::bed
