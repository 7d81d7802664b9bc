// The plugin between hosts of a fabric, on the user-space NIC: properties of this plugin that no conformance rule
// requires.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>

#include "fabric/netns/fabric.h"
#include "fabric/roce/verbs/device/sysfs_view.h"
#include "fabric/system/testing.h"
#include "fabric/topology/graph.h"
#include "harness/control/launcher.h"
#include "harness/control/session.h"
#include "test_paths.h"

namespace mesh {
namespace {

using namespace plugfest::control;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace netns = plugfest::netns;
namespace topology = plugfest::topology;

constexpr int kSystemError = 2;
constexpr int kRemoteError = 6;
constexpr int kWarn = 2;

netns::Options with_nics() {
  netns::Options options;
  options.prepare_host = [](const topology::Host&) { plugfest::roce::verbs::show_nics_of_this_host(); };
  return options;
}

// A fabric and a session of ranks that load this plugin.
struct Hosts {
  // `prepare`: changes the hosts before the ranks start.
  explicit Hosts(
      const std::string& specification, const Environment& environment = {},
      const std::function<void(netns::Fabric&)>& prepare = [](netns::Fabric&) {})
      : fabric(topology::named(specification), with_nics()),
        launcher(fabric),
        prepared((prepare(fabric), true)),
        session(launcher, {.plugin = PLUGFEST_MESH, .environment = environment_with(environment)}),
        lease(session.lease()) {}

  static Environment environment_with(Environment more) {
    more.emplace_back("LD_LIBRARY_PATH", PLUGFEST_ROCE_FOLDER);
    return more;
  }

  netns::Fabric fabric;
  FabricLauncher launcher;
  bool prepared;
  Session session;
  Lease lease;
};

std::string log_text(Rank rank) {
  std::string text;
  for (const LogLine& line : rank.log()) text += line.text + "\n";
  return text;
}

std::string last_warning(Rank rank) {
  std::string text = "none";
  for (const LogLine& line : rank.log())
    if (line.level == kWarn) text = line.text;
  return text;
}

// Messages in flight, with memory of their own.
class Transfers {
 public:
  void add(Rank from, Rank to, const Connection& connection, std::size_t size, int tag) {
    Memory& source = sources_.emplace_back(from.allocate(size));
    from.fill(source, sources_.size());
    sends.emplace_back(connection.send, connection.send.reg(source).buffer(), tag);
    receivers_.push_back(to);
    Memory& target = targets_.emplace_back(to.allocate(size));
    receives.emplace_back(connection.receive, connection.receive.reg(target).buffer(), tag);
  }
  // Waits until all have arrived, and checks every byte.
  void finish() {
    std::vector<Step*> steps;
    for (Send& send : sends) steps.push_back(&send);
    for (Receive& receive : receives) steps.push_back(&receive);
    plugfest::control::finish(steps);
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      EXPECT_EQ(receives[i].size(), static_cast<int>(Slice(targets_[i]).size));
      EXPECT_TRUE(receivers_[i].check(targets_[i], i + 1)) << i;
    }
  }

  std::deque<Send> sends;
  std::deque<Receive> receives;

 private:
  std::deque<Memory> sources_, targets_;
  std::vector<Rank> receivers_;
};

// Sends one message. Throws if it does not arrive.
void deliver(const Rank& from, const Rank& to, const Connection& connection, std::size_t size = 100000) {
  Transfers transfers;
  transfers.add(from, to, connection, size, 5);
  transfers.finish();
}

// Tests until the code is not Success. Throws after 60 s, or if the request completes.
TestOutcome failure_of(const Request& request) {
  TestOutcome outcome;
  const auto has_ended = [&] {
    outcome = request.try_test();
    return outcome.code != kSuccess || outcome.done != 0;
  };
  if (!plugfest::wait_until(has_ended, std::chrono::seconds(60)) || outcome.code == kSuccess)
    throw std::runtime_error("the request completed or did not fail within 60 s, expected an error");
  return outcome;
}

TEST(MeshFabricTest, ReachesEachPeerFromEveryDevice) {
  Hosts hosts("triangle");
  Rank a = hosts.lease.rank("a.eth0"), b = hosts.lease.rank("b.eth0"), c = hosts.lease.rank("c.eth0");
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, c), std::pair(c, a), std::pair(a, a)}) {
    for (const int connecting : {0, 1}) {
      for (const int listening : {0, 1}) {
        const Connection connection = connect({from, Device{connecting}}, {to, Device{listening}});
        deliver(from, to, connection);
      }
    }
  }
  EXPECT_EQ(last_warning(a), "none");
}

TEST(MeshFabricTest, ConnectsOverIpv6) {
  Hosts hosts("pair", {}, [](netns::Fabric& fabric) {
    for (const auto& [host, address] : {std::pair("a", "fd00:1::a/64"), std::pair("b", "fd00:1::b/64")}) {
      for (const std::vector<std::string>& command :
           {std::vector<std::string>{"ip", "address", "flush", "dev", "eth0", "scope", "global"},
            {"ip", "address", "add", address, "dev", "eth0", "nodad"}}) {
        const plugfest::Finished finished = fabric.run(host, command);
        ASSERT_EQ(finished.exit_code, 0) << finished.output;
      }
    }
  });
  Rank a = hosts.lease.rank("a.eth0"), b = hosts.lease.rank("b.eth0");
  const Connection connection = connect({a, Device{0}}, {b, Device{0}});
  deliver(a, b, connection);
  EXPECT_THAT(log_text(a), HasSubstr("connected to fd00:1::b through roce_eth0 (same subnet), path MTU 4096"));
}

TEST(MeshFabricTest, ConnectsFromTheAddressThatReplacedAnother) {
  Hosts hosts("triangle");
  Rank a = hosts.lease.rank("a.eth0"), b = hosts.lease.rank("b.eth0");
  Listener listener = b.listen(Device{0});
  ASSERT_EQ(hosts.fabric.run("a", {"ip", "address", "flush", "dev", "eth0"}).exit_code, 0);
  const PointerOutcome outcome = a.connect(Device{0}, listener.handle()).try_poll();
  EXPECT_EQ(outcome.code, kSystemError);
  // The NIC may not have noticed the change yet.
  EXPECT_THAT(last_warning(a), AnyOf(HasSubstr("the GID of 192.168.100.1 is no longer in the table of roce_eth0: its "
                                               "address was removed or its interface went down; restore it"),
                                     HasSubstr("cannot connect from 192.168.100.1: Cannot assign requested address")));
  ASSERT_EQ(hosts.fabric.run("a", {"ip", "address", "add", "192.168.100.77/24", "dev", "eth0"}).exit_code, 0);
  const Connection connection = connect({a, Device{0}}, {b, Device{0}});
  deliver(a, b, connection);
}

// The peer's interfaces answer no search for a MAC address, so each connect ends with EHOSTUNREACH.
TEST(MeshFabricTest, ConnectTriesEachPathTwiceIfThePeerDoesNotAnswer) {
  Hosts hosts("pair:links=2");
  Rank a = hosts.lease.rank("a.eth0"), b = hosts.lease.rank("b.eth0");
  const auto run = [&](const char* host, const std::vector<std::string>& command) {
    const plugfest::Finished finished = hosts.fabric.run(host, command);
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
  };
  for (const char* interface : {"eth0", "eth1"}) {
    run("b", {"ip", "link", "set", interface, "arp", "off"});
    run("a", {"ip", "neighbor", "flush", "dev", interface});
    run("a", {"ip", "ntable", "change", "name", "arp_cache", "dev", interface, "retrans", "100", "mcast_probes", "1"});
  }
  Listener listener = b.listen(Device{0});
  Connect attempt = a.connect(Device{0}, listener.handle());
  PointerOutcome outcome;
  ASSERT_TRUE(plugfest::wait_until([&] {
    outcome = attempt.try_poll();
    return outcome.code != kSuccess || outcome.value != 0;
  }));
  EXPECT_EQ(outcome.code, kSystemError);
  std::vector<std::string> tries;
  for (const LogLine& line : a.log()) {
    for (const char* end : {"; trying this path once more", "; trying the next path"})
      if (line.text.ends_with(end)) tries.emplace_back(end);
  }
  EXPECT_THAT(tries,
              ElementsAre("; trying this path once more", "; trying the next path", "; trying this path once more"));
  EXPECT_THAT(last_warning(a), HasSubstr(": No route to host; check the link and that host"));
}

TEST(MeshFabricTest, LogsMtusThatDiffer) {
  Hosts hosts("pair", {}, [](netns::Fabric& fabric) { fabric.set_interface_mtu("a", "eth0", 1500); });
  Rank a = hosts.lease.rank("a.eth0"), b = hosts.lease.rank("b.eth0");
  const Connection connection = connect({a, Device{0}}, {b, Device{0}});
  deliver(a, b, connection, 1000);
  EXPECT_THAT(log_text(a), HasSubstr("roce_eth0 has path MTU 1024 and the NIC of "));
  EXPECT_THAT(log_text(a), HasSubstr(" has 4096: give both interfaces one MTU"));
}

const Environment kWithRelays = {{"NCCL_MESH_RELAY_SECRET", "a secret of this test"}};

TEST(MeshFabricTest, RelayConnectsTheEndsOfALine) {
  Hosts hosts("line:3", kWithRelays);
  Rank first = hosts.lease.rank("h1.eth0"), middle = hosts.lease.rank("h2.eth0"), last = hosts.lease.rank("h3.eth0");
  for (const auto& [from, to] : {std::pair(first, last), std::pair(last, first)}) {
    const Connection connection = connect({from, Device{0}}, {to, Device{0}});
    for (const std::size_t size : {0u, 1u, 4096u, 100000u, 20u << 20}) deliver(from, to, connection, size);
  }
  EXPECT_THAT(log_text(first), HasSubstr(" through at most "));
  // Hosts on one subnet do not use the relay.
  deliver(first, middle, connect({first, Device{0}}, {middle, Device{0}}));
  EXPECT_THAT(log_text(first), HasSubstr("(same subnet)"));
}

TEST(MeshFabricTest, SeveralRelaysConnectTheHostsOfALineAndARing) {
  {
    Hosts hosts("line:4", kWithRelays);
    std::vector<Rank> ranks;
    for (const char* name : {"h1.eth0", "h2.eth0", "h3.eth0", "h4.eth0"}) ranks.push_back(hosts.lease.rank(name));
    deliver(ranks[0], ranks[3], connect({ranks[0], Device{0}}, {ranks[3], Device{0}}), 1 << 20);
    EXPECT_THAT(log_text(ranks[0]), HasSubstr(" through at most "));
  }
  // Traffic of all hosts in both directions around the ring.
  Hosts hosts("ring:4", kWithRelays);
  std::vector<Rank> ranks;
  for (const char* name : {"h1.eth0", "h2.eth0", "h3.eth0", "h4.eth0"}) ranks.push_back(hosts.lease.rank(name));
  Transfers transfers;
  for (std::size_t i = 0; i < 4; ++i) {
    const Rank &from = ranks[i], &to = ranks[(i + 2) % 4];
    const Connection connection = connect({from, Device{0}}, {to, Device{0}});
    for (int tag = 0; tag < 3; ++tag) transfers.add(from, to, connection, 8 << 20, tag);
  }
  transfers.finish();
}

TEST(MeshFabricTest, TransfersFailWhenTheRelayIsKilled) {
  Hosts hosts("line:3", kWithRelays);
  Rank first = hosts.lease.rank("h1.eth0"), middle = hosts.lease.rank("h2.eth0"), last = hosts.lease.rank("h3.eth0");
  const Connection connection = connect({first, Device{0}}, {last, Device{0}});
  deliver(first, last, connection);
  Memory target = last.allocate(8);
  const Request receive = connection.receive.irecv(connection.receive.reg(target).buffer());
  middle.kill();
  EXPECT_EQ(failure_of(receive).code, kRemoteError);
  EXPECT_THAT(last_warning(last), HasSubstr("(through relays) disconnected ("));
}

// The middle host's process has another secret.
TEST(MeshFabricTest, RelayServesOnlyHostsWithItsSecret) {
  Hosts hosts("line:3", {kWithRelays.front(), {"NCCL_MESH_RELAY_WAIT", "1"}});
  Session others(hosts.launcher,
                 {.plugin = PLUGFEST_MESH,
                  .environment = Hosts::environment_with({{"NCCL_MESH_RELAY_SECRET", "the secret of another job"}})});
  Lease lease = others.lease();
  Rank first = hosts.lease.rank("h1.eth0"), middle = lease.rank("h2.eth0"), last = hosts.lease.rank("h3.eth0");
  middle.listen(Device{0});
  Listener listener = last.listen(Device{0});
  Connect attempt = first.connect(Device{0}, listener.handle());
  PointerOutcome outcome;
  ASSERT_TRUE(plugfest::wait_until([&] {
    outcome = attempt.try_poll();
    return outcome.code != kSuccess || outcome.value != 0;
  }));
  EXPECT_EQ(outcome.code, kSystemError);
  EXPECT_THAT(last_warning(first), HasSubstr(", and no relay of its neighbors reaches it; give both hosts"));
}

TEST(MeshFabricTest, ReceiveFailsWhenTheSenderIsKilled) {
  Hosts hosts("triangle");
  Rank a = hosts.lease.rank("a.eth0"), b = hosts.lease.rank("b.eth0");
  const Connection connection = connect({a, Device{0}}, {b, Device{0}});
  Memory target = b.allocate(8);
  const Request receive = connection.receive.irecv(connection.receive.reg(target).buffer());
  a.kill();
  EXPECT_EQ(failure_of(receive).code, kRemoteError);
  EXPECT_THAT(last_warning(b), HasSubstr(": its process died or its host is unreachable; check its log"));
}

// A link goes down while messages are on both links. Each message arrives once, in its buffer, and later messages use
// the other link.
TEST(MeshFabricTest, TrafficContinuesOnTheOtherLink) {
  Hosts hosts("pair:links=2");
  Rank a = hosts.lease.rank("a.eth0"), b = hosts.lease.rank("b.eth0");
  for (const char* interface : {"eth0", "eth1"}) {
    const Connection connection = connect({a, Device{0}}, {b, Device{0}});
    deliver(a, b, connection, 1 << 20);

    Transfers transfers;
    for (int i = 0; i < 8; ++i) transfers.add(a, b, connection, 4 << 20, 5);
    for (Receive& receive : transfers.receives) ASSERT_TRUE(receive.post());
    for (Send& send : transfers.sends) ASSERT_TRUE(plugfest::wait_until([&] { return send.post(); }));
    hosts.fabric.set_interface_up("a", interface, false);
    transfers.finish();
    deliver(a, b, connection, 1 << 20);
    EXPECT_THAT(last_warning(a), HasSubstr("its traffic continues through NIC roce_eth"));
    hosts.fabric.set_interface_up("a", interface, true);
  }
}

// eth1 is parallel, but no member of the virtual device.
TEST(MeshFabricTest, VirtualDeviceUsesItsMembersAndSurvivesTheLossOfOne) {
  Hosts hosts("pair:links=3");
  Rank a = hosts.lease.rank("a.eth0"), b = hosts.lease.rank("b.eth0");
  const IntOutcome made = a.try_make_vdevice({0, 2});
  ASSERT_EQ(made.code, kSuccess);
  ASSERT_EQ(made.value, 3);
  const Properties properties = a.properties(Device{3});
  EXPECT_EQ(properties.name, "roce_eth0+roce_eth2");
  EXPECT_EQ(properties.v_props, (std::vector<int>{0, 2}));
  EXPECT_EQ(a.devices(), 4);
  ASSERT_EQ(b.try_make_vdevice({1, 2, 0}).value, 3);
  for (const int listening : {0, 3}) {  // the peer has merged its NICs too, or not
    const Connection connection = connect({a, Device{3}}, {b, Device{listening}});
    deliver(a, b, connection, 4 << 20);
    hosts.fabric.set_interface_up("a", "eth0", false);
    deliver(a, b, connection, 4 << 20);
    deliver(a, b, connection, 4 << 20);
    EXPECT_THAT(last_warning(a), HasSubstr("NIC roce_eth0 to "));
    EXPECT_THAT(last_warning(a), HasSubstr("its traffic continues through NIC roce_eth2"));
    hosts.fabric.set_interface_up("a", "eth0", true);
  }
  const Connection back = connect({b, Device{3}}, {a, Device{3}});
  deliver(b, a, back, 4 << 20);
}

TEST(MeshFabricTest, OnlyPciDevicesAreMerged) {
  Hosts hosts("triangle", {}, [](netns::Fabric& fabric) {
    ASSERT_EQ(fabric.run("a", {"rm", "/sys/class/infiniband/roce_eth1/device/subsystem"}).exit_code, 0);
  });
  Rank a = hosts.lease.rank("a.eth0");
  EXPECT_NE(a.try_make_vdevice({0, 1}).code, kSuccess);
  EXPECT_THAT(last_warning(a), HasSubstr("makeVDevice: roce_eth1 is not a PCI device, and NCCL finds no path to merged "
                                         "NICs without PCI: set NCCL_NET_MERGE_LEVEL=LOC"));
  EXPECT_EQ(a.devices(), 2);
}

// The members lead to different hosts.
TEST(MeshFabricTest, VirtualDeviceReachesEachPeer) {
  Hosts hosts("triangle:links=2");
  Rank a = hosts.lease.rank("a.eth0"), b = hosts.lease.rank("b.eth0"), c = hosts.lease.rank("c.eth0");
  for (Rank rank : {a, b, c}) ASSERT_EQ(rank.try_make_vdevice({0, 1, 2, 3}).value, 4);
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, c), std::pair(c, a), std::pair(a, a)})
    deliver(from, to, connect({from, Device{4}}, {to, Device{4}}), 4 << 20);
  // No member of {0} may lead to b or to c; other NICs serve then.
  ASSERT_EQ(a.try_make_vdevice({0}).value, 5);
  for (const Rank& to : {b, c}) deliver(a, to, connect({a, Device{5}}, {to, Device{1}}), 4 << 20);
  EXPECT_EQ(last_warning(a), "none");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Sanitizers need memory of their own for each allocation.
TEST(MeshFabricTest, CommNeedsLessThan256KiB) {
  constexpr std::uint64_t kComms = 64;
  constexpr std::uint64_t kMaxBytes = 256 * 1024;
  for (const char* topology : {"pair", "pair:links=2"}) {
    Hosts hosts(topology);
    Rank a = hosts.lease.rank("a.eth0"), b = hosts.lease.rank("b.eth0");
    std::deque<Connection> connections;
    const auto connect_one = [&] {
      connections.push_back(connect({a, Device{0}}, {b, Device{0}}));
      deliver(a, b, connections.back(), 4096);
    };
    connect_one();
    const std::uint64_t sender = a.process().resident_bytes, receiver = b.process().resident_bytes;
    for (std::uint64_t i = 0; i < kComms; ++i) connect_one();
    const std::uint64_t sending = (a.process().resident_bytes - sender) / kComms;
    const std::uint64_t receiving = (b.process().resident_bytes - receiver) / kComms;
    EXPECT_LT(sending, kMaxBytes) << topology;
    EXPECT_LT(receiving, kMaxBytes) << topology;
    std::cout << topology << ": " << sending / 1024 << " KiB to send, " << receiving / 1024 << " KiB to receive\n";
  }
}
#endif

}  // namespace
}  // namespace mesh
