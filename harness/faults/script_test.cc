// Fault scripts: valid forms and error messages.
#include "harness/faults/script.h"
#include "fabric/system/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "fabric/system/testing.h"

namespace plugfest::faults {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

const topology::Graph& triangle() {
  static const topology::Graph graph = topology::named("triangle");
  return graph;
}

class FaultFile : public testing::Test {
 protected:
  Script read(const std::string& text, const topology::Graph& graph = triangle()) const {
    const std::string path = folder_ / "f.yaml";
    std::ofstream(path) << text;
    return read_script(path, graph);
  }

  // The entry of a script with one entry.
  Entry entry(const std::string& fields) const {
    const Script script = read("faults:\n  - {" + fields + "}\n");
    return script.entries.at(0);
  }

  // The error message for an entry, without its position.
  std::string error_of(const std::string& fields, const topology::Graph& graph = triangle()) const {
    return error_of_file("faults:\n  - {" + fields + "}\n", "faults f.yaml:2: ", graph);
  }

  std::string error_of_file(const std::string& text, const std::string& start = "",
                            const topology::Graph& graph = triangle()) const {
    std::string message = error_message([&] { read(text, graph); });
    const std::string folder = folder_.path().string() + "/";
    if (const std::size_t at = message.find(folder); at != std::string::npos) message.erase(at, folder.size());
    return message.starts_with(start) ? message.substr(start.size()) : message;
  }

  ScratchFolder folder_;
};

std::string error_of_option(const std::string& asked) {
  return error_message([&] { read_script(asked, triangle()); });
}

TEST(FaultOption, AppliesToAllLinksForTheWholeRun) {
  const Script script = read_script("loss=1%,delay=1ms,seed=7", triangle());
  EXPECT_EQ(script.seed, 7u);
  ASSERT_EQ(script.entries.size(), 1u);
  const Entry& entry = script.entries[0];
  EXPECT_DOUBLE_EQ(entry.fault.packets.loss, 0.01);
  EXPECT_EQ(entry.fault.packets.delay_us, 1000u);
  EXPECT_EQ(entry.fault.text, "loss 1%, delay 1ms on every link");
  EXPECT_EQ(entry.fault.interfaces.size(), 6u);
  EXPECT_EQ(entry.when(), "from the start");
}

TEST(FaultOption, AcceptsDropAsAnotherNameOfLoss) {
  EXPECT_EQ(read_script("drop=1%", triangle()).entries[0].fault.text, "loss 1% on every link");
}

TEST_F(FaultFile, AcceptsDropAsAnotherNameOfLoss) {
  EXPECT_EQ(entry("drop: 1%").fault.text, "loss 1% on every link");
  EXPECT_EQ(error_of("drop: 1%, loss: 2%"), "drop is another name of loss: leave out one of them");
}

TEST(FaultOption, ExplainsErrors) {
  EXPECT_EQ(error_of_option("los=1%"), "--faults \"los=1%\": did you mean loss?, or use a file that ends in .yaml");
  EXPECT_EQ(error_of_option("loss=much"),
            "--faults loss \"much\": expected a fraction below 1 or a percentage, as in 0.01 or 1%");
  EXPECT_EQ(error_of_option("loss=101%"),
            "--faults loss \"101%\": expected a fraction below 1 or a percentage, as in 0.01 or 1%");
  EXPECT_EQ(error_of_option("loss=1%,delay=5"), "--faults delay \"5\": expected a number and a unit, as in 50us");
  EXPECT_EQ(error_of_option("seed=x"), "--faults seed \"x\": expected a whole number");
  EXPECT_EQ(error_of_option("seed=7"), "--faults \"seed=7\": no fault: expected at least one, as in loss=1%");
  EXPECT_EQ(error_of_option("nowhere.yaml"), "faults nowhere.yaml: no such file, or not readable");
}

TEST_F(FaultFile, HasFaultsAndTargets) {
  EXPECT_EQ(entry("loss: 0.1%, reorder: 1%").fault.text, "loss 0.1%, reorder 1% on every link");
  EXPECT_THAT(entry("do: down, link: b-a").fault.interfaces,
              ElementsAre(Interface{"b", "eth0", true}, Interface{"a", "eth0", true}));
  EXPECT_EQ(entry("do: down, link: a.eth0-b.eth0").fault.text, "link a.eth0-b.eth0 down");
  EXPECT_THAT(entry("loss: 100%, interface: c.eth1").fault.interfaces, ElementsAre(Interface{"c", "eth1", true}));
  EXPECT_EQ(entry("do: freeze, host: b").fault.text, "host b frozen");
  EXPECT_EQ(entry("do: kill, host: b").fault.kind, Kind::kKill);
  EXPECT_EQ(entry("mtu: 1280, link: a-b").fault.text, "link a-b mtu 1280");
  EXPECT_EQ(entry("address: 192.168.100.77, interface: b.eth0").fault.text, "b.eth0 address 192.168.100.77");
}

TEST_F(FaultFile, HasTimes) {
  EXPECT_EQ(entry("at: 1.5s, for: 200ms, do: down, link: a-b").at, Duration(1500ms));
  EXPECT_EQ(entry("at: 1.5s, for: 200ms, do: down, link: a-b").duration, Duration(200ms));
  const Entry at_step = entry("on: {rule: xf_06, call: isend, nth: 3, rank: a}, after: 5ms, do: freeze, host: b");
  EXPECT_EQ(at_step.when(), "XF-06: isend 3 of rank a, 0.005 s later");
  const Entry until = entry("on: {rule: XF-06}, until: {call: test, nth: 50, rank: a.eth0}, do: freeze, host: b");
  EXPECT_EQ(until.until->nth, 50u);
  EXPECT_EQ(until.until->rule, "XF-06");
  EXPECT_EQ(until.when(), "XF-06");
  EXPECT_THAT(until.source, testing::EndsWith("f.yaml:2"));
}

TEST_F(FaultFile, NamesLineAndFieldOfAnError) {
  EXPECT_EQ(error_of("los: 1%"), "fault: no field \"los\": did you mean loss?");
  EXPECT_EQ(error_of("loss: lots"), "loss \"lots\": expected a fraction below 1 or a percentage, as in 0.01 or 1%");
  EXPECT_EQ(error_of("at: 5, loss: 1%"), "at \"5\": expected a number and a unit, as in 200ms");
  EXPECT_EQ(error_of("link: a-d, do: down"), "link \"a-d\": did you mean a-b?");
  EXPECT_EQ(error_of("host: d, do: kill"), "host \"d\": did you mean a?");
  EXPECT_EQ(error_of("interface: a.eth7, loss: 1%"), "interface \"a.eth7\": did you mean a.eth0?");
  EXPECT_EQ(error_of("do: dwn, link: a-b"), "do \"dwn\": did you mean down?");
  EXPECT_EQ(error_of("on: {rule: XF-06, call: isent}, loss: 1%"), "on call \"isent\": did you mean isend?");
  EXPECT_EQ(error_of("on: {rule: XF-06, call: isend, nth: 0}, loss: 1%"),
            "on nth \"0\": expected a whole number from 1 to 1000000");
  EXPECT_EQ(error_of("on: {rule: XF-06, call: isend, rank: d}, loss: 1%"), "on rank \"d\": did you mean a?");
  EXPECT_EQ(error_of("on: {call: isend}, loss: 1%"), "on: field rule is missing");
  EXPECT_EQ(error_of_file("faults:\n  - loss: 1%\n    for: soon\n"),
            "faults f.yaml:3: for \"soon\": expected a number and a unit, as in 200ms");
  EXPECT_EQ(error_of_file("fault: []\n"), "faults f.yaml:1: faults: no field \"fault\": expected one of seed, faults");
  EXPECT_EQ(error_of_file("faults: []\n"), "faults f.yaml:1: faults: expected at least one");
  EXPECT_THAT(error_of_file("faults: [\n"), HasSubstr("not YAML"));
}

TEST_F(FaultFile, RefusesInvalidCombinations) {
  EXPECT_EQ(error_of("at: 1s"), "fault: expected one of do, mtu, address, loss, duplicate, reorder, corrupt, delay");
  EXPECT_EQ(error_of("loss: 1%, mtu: 1280, link: a-b"), "fault: loss and mtu are two faults: use two entries");
  EXPECT_EQ(error_of("loss: 0%"), "loss: expected a value above 0");
  EXPECT_EQ(error_of("do: down"), "down: field link is missing");
  EXPECT_EQ(error_of("mtu: 20000, link: a-b"), "mtu \"20000\": expected less than the 9000 bytes of a.eth0");
  EXPECT_EQ(error_of("do: down, host: a"), "down: expected interface or link, not host");
  EXPECT_EQ(error_of("do: down, link: a-b, interface: a.eth0"), "down: expected either link or interface");
  EXPECT_EQ(error_of("do: freeze, link: a-b"), "freeze: expected host, not link");
  EXPECT_EQ(error_of("do: up, link: a-b"), "do \"up\": faults end by themselves: use do: down with for or until");
  EXPECT_EQ(error_of("do: kill, host: a, for: 1s"), "fault: killed ranks do not restart: remove for and until");
  EXPECT_EQ(error_of("at: 1s, on: {rule: XF-06}, loss: 1%"), "fault: expected either at or on");
  EXPECT_EQ(error_of("at: 1s, after: 1s, loss: 1%"),
            "after: needs on; use at for a time since the beginning of the run");
  EXPECT_EQ(error_of("at: 1s, until: {call: test}, loss: 1%"), "until: needs on, which names the rule");
  EXPECT_EQ(error_of("on: {rule: XF-06, nth: 3}, loss: 1%"), "on nth: needs call");
  EXPECT_EQ(error_of("address: 10.1.2.3, interface: b.eth0"),
            "address \"10.1.2.3\": expected an address of 192.168.100.0/24");
  EXPECT_EQ(error_of("address: 192.168.100.1, interface: b.eth0"), "address \"192.168.100.1\": in use by a.eth0");
}

TEST_F(FaultFile, RequiresInterfaceNamesForParallelLinks) {
  const topology::Graph graph = topology::named("pair:links=2");
  EXPECT_EQ(error_of("do: down, link: a-b", graph),
            "link \"a-b\": 2 links have this name: name both interfaces, as in a.eth0-b.eth0");
  EXPECT_EQ(error_of("do: down, link: a.eth1-b.eth1", graph), "no error");
}

TEST_F(FaultFile, RequiresANicForPacketFaults) {
  const topology::Graph graph = topology::named("fat-tree:2");
  const topology::Link* between_switches = nullptr;
  for (const topology::Link& link : graph.links) {
    const auto is_switch = [](const topology::LinkEnd& end) { return end.node == topology::LinkEnd::Node::kSwitch; };
    if (is_switch(link.ends[0]) && is_switch(link.ends[1])) between_switches = &link;
  }
  ASSERT_NE(between_switches, nullptr);
  const std::string name =
      graph.node_name(between_switches->ends[0]) + "-" + graph.node_name(between_switches->ends[1]);
  EXPECT_EQ(error_of("loss: 1%, link: " + name, graph),
            "fault: link " + name + " has no NIC, and NICs inject these faults");
  EXPECT_EQ(error_of("do: down, link: " + name, graph), "no error");
}

TEST_F(FaultFile, RefusesRulesThatDoNotRun) {
  const auto error_of = [&](const std::vector<std::string>& rules, const std::vector<std::string>& known) {
    Script script = read("faults:\n  - {on: {rule: XF-06}, loss: 1%}\n");
    try {
      select_entries(script, rules, known);
    } catch (const std::runtime_error& error) {
      const std::string message = error.what();
      return message.substr(message.find("f.yaml"));
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_of({"XF-06"}, {"XF-06"}), "no error");
  EXPECT_EQ(error_of({"CN-06"}, {"CN-06", "XF-06"}),
            "f.yaml:2: on rule \"XF-06\": not selected for this run: see --rule");
  EXPECT_EQ(error_of({"XF-07"}, {"XF-07", "CN-06"}), "f.yaml:2: on rule \"XF-06\": did you mean XF-07?");
  EXPECT_EQ(error_of({"CN-06"}, {"CN-06"}),
            "f.yaml:2: on rule \"XF-06\": no such rule: run " + program_as_typed() + " rules for the list");
}

TEST_F(FaultFile, KeepsTheEntriesOfSelectedRules) {
  Script script =
      read("faults:\n  - {on: {rule: XF-06}, loss: 1%}\n  - {on: {rule: 'CN-*'}, loss: 2%}\n  - loss: 3%\n");
  select_entries(script, {"CN-06"}, {"CN-06", "XF-06"});
  ASSERT_EQ(script.entries.size(), 2u);
  EXPECT_EQ(script.entries[0].fault.packets.loss, 0.02);
  EXPECT_EQ(script.entries[1].fault.packets.loss, 0.03);
}

TEST(Steps, MatchRulesByPattern) {
  EXPECT_TRUE(matches({.rule = "XF-*"}, "XF-06"));
  EXPECT_FALSE(matches({.rule = "XF-06"}, "XF-07"));
}

}  // namespace
}  // namespace plugfest::faults
