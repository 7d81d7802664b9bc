#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <vector>

#include "fabric/system/testing.h"
#include "fabric/topology/draw.h"
#include "fabric/topology/file.h"
#include "fabric/topology/quantity.h"

namespace plugfest::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TopologyFile : public testing::Test {
 protected:
  std::string path() const { return folder_ / "lab.yaml"; }

  Graph read(const std::string& text) const {
    std::ofstream(path()) << text;
    return named(path());
  }

  // The error message, without the path of the folder.
  std::string error_of(const std::string& text) const {
    std::ofstream(path()) << text;
    return error_of_file("lab.yaml");
  }

  std::string error_of_file(const std::string& name) const {
    std::string message = error_message([&] { named((folder_ / name).string()); });
    const std::string folder = folder_.path().string() + "/";
    const std::size_t at = message.find(folder);
    return at == std::string::npos ? message : message.erase(at, folder.size());
  }

  ScratchFolder folder_;
};

TEST_F(TopologyFile, DescribesHostsSwitchesAndLinks) {
  const Graph graph = read(R"(
defaults: {mtu: 1500, rate: 10Gbit}
hosts: [a, b, c]
switches:
  - {name: s1, subnet: 10.1.0.0/24}
  - {name: r1, kind: router, tier: 2}
links:
  - {ends: [a, b], subnet: 10.0.0.0/24, rate: 1Gbit, delay: 50us}
  - {ends: [c, r1]}
  - {ends: [a, s1], mtu: 9000}
  - {ends: [r1, s1]}
)");
  EXPECT_EQ(graph.name, path());
  ASSERT_EQ(graph.hosts.size(), 3u);
  ASSERT_EQ(graph.links.size(), 4u);
  std::vector<std::string> links;
  for (const Link& link : graph.links)
    links.push_back(graph.node_name(link.ends[0]) + "-" + graph.node_name(link.ends[1]) + " " + link.subnet.text());
  EXPECT_THAT(links, ElementsAre("a-b 10.0.0.0/24", "c-r1 10.0.1.0/30", "a-s1 10.1.0.0/24", "r1-s1 10.1.0.0/24"));
  EXPECT_EQ(graph.links[0].rate_bits_per_second, 1'000'000'000u);
  EXPECT_EQ(graph.links[0].mtu_bytes, 1500);
  EXPECT_EQ(graph.links[0].delay_us, 50u);
  EXPECT_EQ(graph.links[2].mtu_bytes, 9000);
  EXPECT_EQ(graph.links[2].rate_bits_per_second, 10'000'000'000u);
  EXPECT_EQ(graph.switches[0].kind, SwitchKind::kBridge);
  EXPECT_EQ(graph.switches[1].kind, SwitchKind::kRouter);
  EXPECT_EQ(graph.switches[1].tier, 2);
}

TEST_F(TopologyFile, NamesLineAndFieldOfAnInvalidValue) {
  EXPECT_EQ(error_of("hosts: [a, b]\nlinks:\n  - ends: [a, b]\n    rate: 10 gigs\n"),
            "topology lab.yaml:4: link rate \"10 gigs\": expected a number and a unit, as in 10Gbit");
  EXPECT_EQ(error_of("hosts: [a, b]\ndefaults: {mtu: big}\nlinks: []\n"),
            "topology lab.yaml:2: defaults mtu \"big\": expected a whole number from 576 to 65535");
  EXPECT_EQ(error_of("hosts: [a, b]\nlinks:\n  - {ends: [a, b], subnet: 10.0.0.1/30}\n"),
            "topology lab.yaml:3: link subnet \"10.0.0.1/30\": expected the network address, 10.0.0.0/30");
  EXPECT_EQ(error_of("hosts: [a]\nswitches:\n- {name: s, kind: hub}\nlinks: []\n"),
            "topology lab.yaml:3: switch kind \"hub\": expected bridge or router");
  EXPECT_EQ(error_of("hosts: [a]\nswitches:\n- {name: s, kind: router, tier: top}\nlinks: []\n"),
            "topology lab.yaml:3: switch tier \"top\": expected a whole number from 1 to 9");
}

TEST_F(TopologyFile, RefusesDelayBetweenSwitches) {
  const std::string nodes = "hosts: [a]\nswitches: [{name: r, kind: router}, {name: s, kind: router}]\n";
  EXPECT_EQ(error_of(nodes + "links:\n  - {ends: [a, r], delay: 5us}\n  - {ends: [r, s], delay: 5us}\n"),
            "topology lab.yaml:5: link delay: only NICs of hosts delay packets and both ends are switches: set it on "
            "links of hosts");
  const Graph graph = read("defaults: {delay: 5us}\n" + nodes + "links: [{ends: [a, r]}, {ends: [r, s]}]\n");
  EXPECT_EQ(graph.links[0].delay_us, 5u);
  EXPECT_EQ(graph.links[1].delay_us, 0u);
}

TEST_F(TopologyFile, ListsTheKnownFields) {
  EXPECT_EQ(error_of("hosts: [a, b]\nlinks:\n  - {ends: [a, b], speed: 1Gbit}\n"),
            "topology lab.yaml:3: link: no field \"speed\": expected one of ends, subnet, mtu, rate, delay");
  EXPECT_EQ(error_of("nodes: [a]\n"),
            "topology lab.yaml:1: topology: no field \"nodes\": expected one of defaults, hosts, switches, links");
  EXPECT_EQ(error_of("hosts: [a, b]\n"), "topology lab.yaml:1: topology: field links is missing");
  EXPECT_EQ(error_of("hosts: [a, b]\nlinks:\n- {mtu: 1500}\n"), "topology lab.yaml:3: link: field ends is missing");
  EXPECT_EQ(error_of("hosts: [a]\nswitches:\n- {name: s}\nlinks: []\n"),
            "topology lab.yaml:3: switch: field subnet is missing");
  EXPECT_EQ(error_of("hosts: [a]\nswitches:\n- {name: s, kind: router, subnet: 10.0.0.0/24}\nlinks: []\n"),
            "topology lab.yaml:3: switch subnet: only bridges have one; set it on the links of the router");
}

TEST_F(TopologyFile, RefusesInvalidNamesAndNamesInUse) {
  EXPECT_EQ(error_of("hosts: [a, a]\nlinks: []\n"), "topology lab.yaml:1: host \"a\": the name is in use");
  EXPECT_EQ(error_of("hosts: [a.b]\nlinks: []\n"),
            "topology lab.yaml:1: host \"a.b\": expected a letter, then letters, digits, - or _");
  EXPECT_EQ(error_of("hosts: [a]\nswitches: [{name: a, kind: router}]\nlinks: []\n"),
            "topology lab.yaml:2: switch \"a\": the name is in use");
}

TEST_F(TopologyFile, RefusesInvalidLinks) {
  const std::string hosts = "hosts: [a, b, c]\nlinks:\n";
  EXPECT_EQ(error_of(hosts + "- {ends: [a, d]}\n"), "topology lab.yaml:3: link ends: no host or switch \"d\"");
  EXPECT_EQ(error_of(hosts + "- {ends: [a, a]}\n"), "topology lab.yaml:3: link ends: both ends are a");
  EXPECT_EQ(error_of(hosts + "- {ends: [a, b], loss: 1%}\n"),
            "topology lab.yaml:3: link loss: is a fault, not a topology: use --faults loss=1%");
  EXPECT_EQ(error_of(hosts + "- {ends: a}\n"), "topology lab.yaml:3: link ends: expected two names, as in [a, b]");
  EXPECT_EQ(error_of(hosts + "- {ends: [a, b], subnet: 10.0.0.0/24}\n- {ends: [a, c], subnet: 10.0.0.4/30}\n"),
            "topology lab.yaml:4: link subnet 10.0.0.4/30: overlaps 10.0.0.0/24");
  EXPECT_EQ(error_of(hosts + "- {ends: [a, b], subnet: 10.255.1.0/24}\n"),
            "topology lab.yaml:3: link subnet 10.255.1.0/24: overlaps 10.255.0.0/16, which is reserved for the "
            "out-of-band network");
  const std::string bridges =
      "hosts: [a]\nswitches:\n- {name: s, subnet: 10.0.0.0/24}\n- {name: t, subnet: 10.0.1.0/24}\nlinks:\n";
  EXPECT_EQ(error_of(bridges + "- {ends: [s, t]}\n"),
            "topology lab.yaml:6: link ends: the bridges have different subnets, 10.0.0.0/24 and 10.0.1.0/24");
  EXPECT_EQ(error_of(bridges + "- {ends: [a, s], subnet: 10.0.2.0/24}\n"),
            "topology lab.yaml:6: link subnet: a link of a bridge has the bridge's subnet: remove the field");
  const std::string small = "hosts: [a, b, c]\nswitches: [{name: s, subnet: 10.0.0.0/30}]\nlinks:\n";
  EXPECT_EQ(error_of(small + "- {ends: [a, s]}\n- {ends: [b, s]}\n- {ends: [c, s]}\n"),
            "topology lab.yaml:6: link: subnet 10.0.0.0/30 is too small for its links");
}

TEST_F(TopologyFile, RefusesInvalidYaml) {
  EXPECT_EQ(error_of("hosts: [a\nlinks: []\n").substr(0, 34), "topology lab.yaml:2: not YAML: end");
  EXPECT_EQ(error_of(std::string(10000, '[')), "topology lab.yaml:1: is nested too deeply");
  EXPECT_EQ(error_of("hosts: [a, b]\nlinks:\n- {ends: [a, b]}\n\nhosts: [c]\n"),
            "topology lab.yaml:5: field hosts is already in line 1: leave out one of them");
  EXPECT_EQ(error_of("hosts: [a, b]\nlinks:\n- ends: [a, b]\n  mtu: 1500\n  mtu: 9000\n"),
            "topology lab.yaml:5: field mtu is already in line 4: leave out one of them");
  EXPECT_EQ(error_of("hosts: &all [a, *all]\nlinks: []\n"), "topology lab.yaml:1: host: expected one value");
  EXPECT_EQ(error_of(std::string((4 << 20) + 1, ' ')), "topology lab.yaml: is larger than 4 MiB: expected a YAML file");
  EXPECT_EQ(error_of(""), "topology lab.yaml:1: topology: expected fields, as in name: value");
  EXPECT_EQ(error_of("- a\n"), "topology lab.yaml:1: topology: expected fields, as in name: value");
  EXPECT_EQ(error_of("hosts: a\nlinks: []\n"), "topology lab.yaml:1: hosts: expected a list");
  EXPECT_EQ(error_of("hosts: []\nlinks: []\n"), "topology lab.yaml:1: hosts: expected at least one");
  EXPECT_EQ(error_message([] { named("/no/such/lab.yaml"); }),
            "topology /no/such/lab.yaml: no such file, or not readable");
  std::filesystem::create_directory(folder_ / "folder.yaml");
  EXPECT_EQ(error_of_file("folder.yaml"), "topology folder.yaml: is a folder: expected a YAML file");
}

/// The position of a node in a drawing.
std::pair<double, double> place_of(const std::string& dot, const std::string& node) {
  const std::size_t at = dot.find("pos=\"", dot.find("\n  \"" + node + "\" ["));
  double x = NAN, y = NAN;
  EXPECT_EQ(std::sscanf(dot.c_str() + at, "pos=\"%lf,%lf!\"", &x, &y), 2) << node;
  return {x, y};
}

TEST(Drawing, LabelsLinksWithSubnetAndRate) {
  const std::string dot = to_dot(named("leaf-spine:1,1,1,rate=10Gbit,delay=5us"));
  EXPECT_THAT(dot, HasSubstr("\"link.0\" [label=\"10.0.0.0/30\\n10Gbit\\n5us\", "));
  EXPECT_THAT(dot, HasSubstr("\"h1\" -- \"link.0\" -- \"leaf1\";"));
  EXPECT_THAT(dot, HasSubstr("\"leaf1.eth0\" [label=\"eth0\", "));
}

TEST(Drawing, MarksSwitchesAndLinks) {
  const std::string dot = to_dot(named("leaf-spine:1,2,1"), {.switches = {{0, 0}}, .links = {{1, 1}}, .roots = {0}});
  EXPECT_THAT(dot, HasSubstr("pos=\"60,190!\", color=\"#c8553d\", penwidth=3, peripheries=2];\n"));
  EXPECT_THAT(dot, HasSubstr("-- \"link.1\" -- \"spine1\" [color=\"#0b6e4f\", penwidth=3];\n"));
  EXPECT_THAT(dot, HasSubstr("-- \"link.0\" -- \"leaf1\";\n"));
}

TEST(Drawing, PutsLabelsOnTheirLinks) {
  const Graph graph = named("fat-tree:4");
  const std::string dot = to_dot(graph);
  for (std::size_t i = 0; i < graph.links.size(); ++i) {
    const auto [x1, y1] = place_of(dot, graph.node_name(graph.links[i].ends[0]));
    const auto [x2, y2] = place_of(dot, graph.node_name(graph.links[i].ends[1]));
    const auto [x, y] = place_of(dot, "link." + std::to_string(i));
    const double distance = std::abs((x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)) / std::hypot(x2 - x1, y2 - y1);
    EXPECT_LT(distance, 2) << i;
  }
}

TEST(Drawing, KeepsTheOrderOfHostsAndSwitches) {
  const Graph graph = named("fat-tree:4");
  const std::string dot = to_dot(graph);
  for (std::size_t i = 1; i < graph.hosts.size(); ++i)
    EXPECT_LT(place_of(dot, graph.hosts[i - 1].name).first, place_of(dot, graph.hosts[i].name).first) << i;
  for (std::size_t i = 1; i < graph.switches.size(); ++i) {
    if (graph.switches[i - 1].tier != graph.switches[i].tier) continue;
    EXPECT_LT(place_of(dot, graph.switches[i - 1].name).first, place_of(dot, graph.switches[i].name).first) << i;
  }
  EXPECT_LT(place_of(dot, "h1").second, place_of(dot, "edge1").second);
  EXPECT_LT(place_of(dot, "edge1").second, place_of(dot, "agg1").second);
}

// Expects that `parse` refuses each of `texts`, with this message behind the quoted text.
template <typename Parse>
void expect_refused(Parse parse, const std::vector<std::string>& texts, const std::string& message) {
  for (const std::string& text : texts)
    EXPECT_EQ(error_message([&] { parse(text); }), "\"" + text + "\": expected " + message);
}

TEST(Rates, AreANumberAndAUnit) {
  EXPECT_EQ(parse_rate("10Gbit"), 10'000'000'000u);
  EXPECT_EQ(parse_rate("2.5Gbit"), 2'500'000'000u);
  EXPECT_EQ(parse_rate("64kbit"), 64'000u);
  EXPECT_EQ(rate_text(parse_rate("10Gbit")), "10Gbit");
  EXPECT_EQ(rate_text(parse_rate("2.5Gbit")), "2500Mbit");
  EXPECT_EQ(rate_text(1), "1bit");
  expect_refused(parse_rate, {"10 gigs", "10", "Gbit", "", "10GBIT", "10 Gbit", "1e3Gbit", "10Gbits"},
                 "a number and a unit, as in 10Gbit");
  expect_refused(parse_rate, {"0bit", "-1Gbit", "11Tbit", "nanGbit", "infbit"}, "a rate from 1bit to 10Tbit");
}

TEST(Delays, AreANumberAndAUnit) {
  EXPECT_EQ(parse_delay("50us"), 50u);
  EXPECT_EQ(parse_delay("0.5ms"), 500u);
  EXPECT_EQ(parse_delay("1s"), 1'000'000u);
  EXPECT_EQ(parse_delay("0us"), 0u);
  EXPECT_EQ(delay_text(50) + delay_text(2000) + delay_text(3'000'000) + delay_text(0), "50us2ms3s0us");
  expect_refused(parse_delay, {"50"}, "a number and a unit, as in 50us");
  expect_refused(parse_delay, {"11s"}, "a delay from 0us to 10s");
}

TEST(Mtus, AreBytes) {
  EXPECT_EQ(parse_mtu("1500"), 1500);
  expect_refused(parse_mtu, {"575", "65536", "9k", "", "-1500", "99999999999"}, "a whole number from 576 to 65535");
}

TEST(Subnets, AreANetworkAndAPrefixLength) {
  EXPECT_EQ(parse_subnet("10.0.0.4/30").text(), "10.0.0.4/30");
  EXPECT_EQ(parse_subnet("223.255.255.0/24").text(), "223.255.255.0/24");
  expect_refused(parse_subnet,
                 {"0.0.0.0/8", "127.0.0.0/8", "127.1.2.0/24", "224.0.0.0/8", "240.0.0.0/8", "255.255.255.0/24"},
                 "addresses of hosts, from 1.0.0.0 to 223.255.255.255 without 127.0.0.0/8");
  expect_refused(parse_subnet, {"10.0.0.5/30"}, "the network address, 10.0.0.4/30");
  expect_refused(parse_subnet,
                 {"10.0.0.0", "10.0.0/30", "10.0.0.0/31", "10.0.0.0/7", "10.0.0.0/", "10.0.0.0/30x", "/30", "host/30"},
                 "an IPv4 network and its prefix length from 8 to 30, as in 10.0.0.0/30");
}

TEST(Durations, AreANumberAndAUnit) {
  EXPECT_EQ(parse_duration("200ms"), 200'000'000);
  EXPECT_EQ(parse_duration("1.5s"), 1'500'000'000);
  EXPECT_EQ(parse_duration("60min"), 3600'000'000'000);
  expect_refused(parse_duration, {"5", "s", "soon", ""}, "a number and a unit, as in 200ms");
  expect_refused(parse_duration, {"0s", "-1s", "61min"}, "a duration above 0 and up to 60min");
}

TEST(Fractions, ArePercentagesOrDecimals) {
  EXPECT_DOUBLE_EQ(parse_fraction("1%"), 0.01);
  EXPECT_DOUBLE_EQ(parse_fraction("0.25"), 0.25);
  expect_refused(parse_fraction, {"101%", "2", "1", "-1%", "%", "", "nan"},
                 "a fraction below 1 or a percentage, as in 0.01 or 1%");
}

TEST(Addresses, AreFourNumbers) {
  EXPECT_EQ(parse_address("192.168.100.7").text(), "192.168.100.7");
  expect_refused(parse_address, {"192.168.100"}, "an address, as in 192.168.100.7");
}

}  // namespace
}  // namespace plugfest::topology
