// Fabrics of all kinds of topologies carry packets; a fabric in one namespace is removed completely.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <net/if.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <fstream>
#include <map>
#include <sstream>

#include "fabric/netns/testing/udp_sockets.h"
#include "fabric/system/testing.h"
#include "fabric/topology/builder.h"
#include "fabric/topology/graph.h"

namespace plugfest::netns {
namespace {

using testing::HasSubstr;
using topology::Graph;
using topology::Ipv4Address;

// Sends a datagram in both directions of every path, between sockets bound to the addresses of the interfaces. Each
// datagram is one packet of the MTU.
void expect_all_paths(Fabric& fabric) {
  constexpr std::size_t kHeaderBytes = 20 + 8;  // IPv4 and UDP
  const Graph& graph = fabric.graph();
  std::map<topology::HostInterface, Descriptor> sockets;
  for (const topology::Path& path : graph.paths()) {
    for (const topology::HostInterface& end : {path.from, path.to}) {
      if (sockets.count(end) != 0) continue;
      sockets[end] = udp_socket(fabric, graph.hosts[end.host].name, graph.interface(end).address);
    }
  }
  for (const topology::Path& path : graph.paths()) {
    const Ipv4Address from = graph.interface(path.from).address;
    const Ipv4Address to = graph.interface(path.to).address;
    const std::string text(static_cast<std::size_t>(graph.interface(path.from).mtu_bytes) - kHeaderBytes, 'x');
    ASSERT_EQ(deliver(sockets[path.from], to, sockets[path.to], text), from.text() + " " + text)
        << graph.interface_name(path.to);
    ASSERT_EQ(deliver(sockets[path.to], from, sockets[path.from], text), to.text() + " " + text)
        << graph.interface_name(path.from);
  }
}

class BuiltTopology : public testing::TestWithParam<const char*> {};

TEST_P(BuiltTopology, CarriesPacketsOverEveryPath) {
  Fabric fabric(topology::named(GetParam()));
  expect_all_paths(fabric);
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name;
  for (const char* c = info.param; *c != '\0'; ++c)
    name += std::isalnum(static_cast<unsigned char>(*c)) != 0 ? *c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Named, BuiltTopology,
                         testing::Values("pair", "pair:links=2", "triangle:links=2,mtu=1500", "mesh:4", "ring:4",
                                         "line:3", "star:4", "rail:2,3", "fat-tree:2", "fat-tree:4", "leaf-spine:3,2,3",
                                         "star:3,rate=1Gbit"),
                         test_name);

// The number of packets that an interface of a switch or host has sent.
long packets_sent(Fabric& fabric, const std::string& node, const std::string& interface) {
  long sent = -1;
  fabric.call(node, [&] {
    std::ifstream file("/proc/thread-self/net/dev");
    for (std::string line; std::getline(file, line);) {
      const std::size_t colon = line.find(':');
      if (colon == std::string::npos || line.find(interface) == std::string::npos) continue;
      std::istringstream numbers(line.substr(colon + 1));
      for (int column = 0; column < 10; ++column) numbers >> sent;  // 8 receive columns, then bytes and packets sent
    }
  });
  return sent;
}

TEST(FatTree, SpreadsPortsOverEqualCostRoutes) {
  Fabric fabric(topology::named("fat-tree:4"));
  const Ipv4Address last = fabric.graph().host("h16").interfaces[0].address;
  const Descriptor receiver = udp_socket(fabric, "h16");
  const long before[] = {packets_sent(fabric, "edge1", "eth2"), packets_sent(fabric, "edge1", "eth3")};
  constexpr int kSockets = 64;
  for (int i = 0; i < kSockets; ++i) {
    const Descriptor sender = udp_socket(fabric, "h1", {}, 0);
    ASSERT_THAT(deliver(sender, last, receiver, "x"), HasSubstr("x"));
  }
  const long first = packets_sent(fabric, "edge1", "eth2") - before[0];
  const long second = packets_sent(fabric, "edge1", "eth3") - before[1];
  // The split is random. The probability that one route gets no port is 2^-63.
  EXPECT_GT(first, 0);
  EXPECT_GT(second, 0);
  EXPECT_GE(first + second, kSockets);
}

TEST(Rates, LimitBothEndsOfALink) {
  Fabric fabric(topology::named("star:2,rate=2.5Gbit"));
  EXPECT_THAT(fabric.run("h1", {"tc", "qdisc", "show", "dev", "eth0"}).output, HasSubstr("rate 2500Mbit burst 312"));
  EXPECT_THAT(fabric.run("s1", {"tc", "qdisc", "show", "dev", "eth1"}).output, HasSubstr("rate 2500Mbit"));
}

TEST(Rates, MayExceedThirtyTwoBits) {
  Fabric fabric(topology::named("pair:rate=400Gbit"));
  EXPECT_THAT(fabric.run("a", {"tc", "qdisc", "show", "dev", "eth0"}).output, HasSubstr("rate 400Gbit"));
}

TEST(Switches, RunCommandsToo) {
  Fabric fabric(topology::named("leaf-spine:2,1,1"));
  EXPECT_THAT(fabric.run("spine1", {"ip", "-4", "route"}).output,
              HasSubstr("10.0.0.0/30 via 10.0.0.9 dev eth0 proto static"));
}

TEST(HostWithTwoRouters, AnswersFromTheRequestedAddress) {
  // Hosts a and b each have a link to both routers. The routers are not connected to each other.
  Graph graph;
  const topology::Node a = add_host(graph, "a");
  const topology::Node b = add_host(graph, "b");
  std::uint32_t next = 10u << 24;
  for (const char* name : {"r1", "r2"}) {
    const topology::Node router = add_switch(graph, name, topology::SwitchKind::kRouter, 1);
    for (const topology::Node host : {a, b}) connect(graph, host, router, {{next += 4}, 30}, {});
  }
  Fabric fabric(graph);
  expect_all_paths(fabric);
}

TEST(BridgeBelowARouter, ReachesOtherSubnets) {
  Graph graph;
  const topology::Node a = add_host(graph, "a");
  const topology::Node b = add_host(graph, "b");
  const topology::Node c = add_host(graph, "c");
  const topology::Node bridge = add_switch(graph, "s1", topology::SwitchKind::kBridge, 1);
  const topology::Node other = add_switch(graph, "s2", topology::SwitchKind::kBridge, 1);
  const topology::Node router = add_switch(graph, "r1", topology::SwitchKind::kRouter, 2);
  const topology::Subnet shared = {{10u << 24}, 24};
  connect(graph, a, bridge, shared, {});
  connect(graph, b, other, shared, {});
  connect(graph, bridge, other, shared, {});
  connect(graph, router, other, shared, {});
  connect(graph, c, router, {{(10u << 24) + 256}, 30}, {});
  Fabric fabric(graph);
  expect_all_paths(fabric);
}

TEST(Descriptors, AreCountedBeforeAFabricIsBuilt) {
  const rlimit few = {64, 64};
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  // In another process, because a lowered hard limit cannot be raised again.
  EXPECT_EXIT(
      {
        setrlimit(RLIMIT_NOFILE, &few);
        try {
          Fabric fabric(topology::named("star:300"));
        } catch (const std::runtime_error& error) {
          std::fputs(error.what(), stderr);
          _exit(1);
        }
      },
      testing::ExitedWithCode(1),
      "topology star:300 needs 729 file descriptors and the limit is 64: run\n"
      "    sudo prlimit --pid \\$\\$ --nofile=729\n  or use a smaller topology");
}

constexpr const char* kNames[] = {"a-eth0", "a-eth1", "b-eth0", "b-eth1", "c-eth0", "c-eth1"};

bool exists(const char* interface) { return if_nametoindex(interface) != 0; }

Options flat() {
  Options options;
  options.flat = true;
  return options;
}

std::string refusal(const std::string& topology) {
  return error_message([&] { const Fabric fabric(topology::named(topology), flat()); });
}

TEST(FlatFabric, CreatesAllInterfacesInOneNamespaceAndRemovesThem) {
  {
    Fabric fabric(topology::named("triangle"), flat());
    for (const char* name : kNames) EXPECT_TRUE(exists(name)) << name;
    const Finished addresses = fabric.run("a", {"ip", "-o", "-4", "address", "show", "dev", "b-eth0"});
    EXPECT_THAT(addresses.output, HasSubstr("192.168.100.2/24"));
    EXPECT_EQ(fabric.run("a", {"cat", "/proc/sys/net/ipv4/conf/a-eth0/accept_local"}).output, "1\n");
  }
  for (const char* name : kNames) EXPECT_FALSE(exists(name)) << name;
}

TEST(FlatFabric, GivesEachHostItsOwnSysfs) {
  Options options = flat();
  options.prepare_host = [](const topology::Host& host) {
    const std::string path = "/sys/class/infiniband/" + host.name;
    close(open(path.c_str(), O_CREAT | O_WRONLY, 0644));
  };
  Fabric fabric(topology::named("triangle"), options);
  EXPECT_EQ(fabric.run("a", {"ls", "/sys/class/infiniband"}).output, "a\n");
  EXPECT_EQ(fabric.run("b", {"ls", "/sys/class/infiniband"}).output, "b\n");
}

TEST(FlatFabric, RefusesASecondFabric) {
  const Fabric fabric(topology::named("pair"), flat());
  EXPECT_THAT(refusal("mesh:4"), HasSubstr("another fabric uses this machine's network namespace"));
}

TEST(FlatFabric, RefusesSwitches) {
  EXPECT_THAT(refusal("star:3"), HasSubstr("topology star:3: its switches need network namespaces"));
}

TEST(FlatFabric, RefusesAnInterfaceNameInUse) {
  const Fabric fabric(topology::named("pair"), flat());
  EXPECT_THAT(refusal("pair"), HasSubstr("interface a-eth0 exists already: run sudo ip link del a-eth0"));
  EXPECT_TRUE(exists("a-eth0"));
}

TEST(FlatFabric, IsRemovedWhenItsProcessIsKilled) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Fabric fabric(topology::named("triangle"), flat());
    (void)!write(ends[1], "x", 1);
    pause();
  }
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_TRUE(exists("a-eth0"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  // The cleanup process also holds the pipe, so end of file means that it has exited.
  while (read(ends[0], &byte, 1) > 0) continue;
  close(ends[0]);
  for (const char* name : kNames) EXPECT_FALSE(exists(name)) << name;
}

}  // namespace
}  // namespace plugfest::netns
