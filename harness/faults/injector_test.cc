// Faults of an injector, and the state of the fabric after they end.
#include "harness/faults/injector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "fabric/netns/testing/udp_sockets.h"
#include "fabric/system/testing.h"
#include "fabric/topology/quantity.h"

namespace plugfest::faults {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Starts a sleeping process for each rank, outside all hosts.
class SleepLauncher : public control::Launcher {
 public:
  pid_t launch(const control::LaunchRequest& request) override {
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sleep", "sleep", "1000", nullptr);
      _exit(127);
    }
    started.push_back(child);
    (void)request;
    return child;
  }
  ~SleepLauncher() override {
    for (const pid_t child : started) {
      ::kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  std::vector<pid_t> started;
};

// The state of a process: 'S', 'T', 'Z', …
char state_of(pid_t process) { return process_entry(process).value().state; }

// Whether a datagram from one host arrives at an address of another.
bool reaches(netns::Fabric& fabric, const std::string& from, const std::string& to, const std::string& address) {
  const Descriptor sender = netns::udp_socket(fabric, from);
  const Descriptor receiver = netns::udp_socket(fabric, to);
  return netns::deliver(sender, topology::parse_address(address), receiver, "x").ends_with(" x");
}

class InjectorTest : public testing::Test {
 protected:
  std::string of_a(const std::string& command) { return fabric_.run("a", {"sh", "-c", command}).output; }
  std::string addresses() { return of_a("ip -4 -o addr show eth0"); }

  netns::Fabric fabric_{topology::named("triangle")};
  SleepLauncher launcher_;
  RanksByHost ranks_{launcher_};
  Injector injector_{fabric_, ranks_};
  const Interface a_eth0_{"a", "eth0", true};
};

TEST_F(InjectorTest, KeepsALinkDownUntilItsLastFaultHasEnded) {
  const Fault down = {.kind = Kind::kDown, .interfaces = find_link(fabric_.graph(), "a-b")};
  const Fault one_end = {.kind = Kind::kDown, .interfaces = {a_eth0_}};
  const std::uint64_t first = injector_.begin(down);
  const std::uint64_t second = injector_.begin(one_end);
  EXPECT_THAT(of_a("ip -o link show eth0"), HasSubstr("state DOWN"));
  EXPECT_THAT(of_a("ip -o link show eth1"), HasSubstr("state UP"));
  injector_.end(first);
  EXPECT_THAT(of_a("ip -o link show eth0"), Not(HasSubstr(",UP")));
  injector_.end(second);
  EXPECT_THAT(of_a("ip -o link show eth0"), HasSubstr(",UP"));
  EXPECT_TRUE(reaches(fabric_, "a", "b", "192.168.100.2"));
}

TEST_F(InjectorTest, UsesTheSmallestMtuOfAllFaults) {
  const auto mtu = [&] { return of_a("cat /sys/class/net/eth0/mtu"); };
  ActiveFault large(injector_, {.kind = Kind::kMtu, .mtu_bytes = 4000, .interfaces = {a_eth0_}});
  ActiveFault small(injector_, {.kind = Kind::kMtu, .mtu_bytes = 1280, .interfaces = {a_eth0_}});
  EXPECT_EQ(mtu(), "1280\n");
  small.end();
  EXPECT_EQ(mtu(), "4000\n");
  large.end();
  EXPECT_EQ(mtu(), "9000\n");
}

TEST_F(InjectorTest, ChangesAndRestoresAnAddress) {
  {
    const ActiveFault fault(
        injector_,
        {.kind = Kind::kAddress, .address = topology::parse_address("192.168.100.99"), .interfaces = {a_eth0_}});
    EXPECT_THAT(addresses(), HasSubstr("192.168.100.99/24"));
    EXPECT_THAT(addresses(), Not(HasSubstr("192.168.100.1/24")));
    EXPECT_TRUE(reaches(fabric_, "b", "a", "192.168.100.99"));
  }
  EXPECT_THAT(addresses(), HasSubstr("192.168.100.1/24"));
  EXPECT_TRUE(reaches(fabric_, "b", "a", "192.168.100.1"));
}

// A process may be killed before, during and after a change of an address that it has recorded.
TEST_F(InjectorTest, RestoresAnAddressWhoseChangeWasInterrupted) {
  const topology::Ipv4Address original = fabric_.graph().host("a").interfaces[0].address;
  const topology::Ipv4Address other = topology::parse_address("192.168.100.99");
  for (const char* done : {"true", "ip address flush dev eth0", "ip address add 192.168.100.99/24 dev eth0"}) {
    {
      FaultCleanup cleanup(fabric_);
      cleanup.record_change(a_eth0_, original, other);
      EXPECT_EQ(fabric_.run("a", {"sh", "-c", done}).exit_code, 0);
    }
    EXPECT_THAT(addresses(), HasSubstr("192.168.100.1/24")) << done;
    EXPECT_THAT(addresses(), Not(HasSubstr("192.168.100.99/24"))) << done;
    EXPECT_TRUE(reaches(fabric_, "b", "a", "192.168.100.1")) << done;
  }
}

TEST(PacketFaults, AreWrittenToTheFilesOfTheNics) {
  netns::Options options;
  options.prepare_host = [](const topology::Host& host) {
    for (const topology::Interface& interface : host.interfaces)
      std::filesystem::create_directory("/sys/class/infiniband/roce_" + interface.name);
  };
  netns::Fabric fabric(topology::named("star:2"), options);
  SleepLauncher launcher;
  RanksByHost ranks(launcher);
  Injector injector(fabric, ranks);
  const auto file = [&](const std::string& host) {
    return fabric.run(host, {"cat", "/sys/class/infiniband/roce_eth0/faults"}).output;
  };
  const std::vector<Interface> all = host_interfaces(fabric.graph());
  PacketFaults lossy, late;
  lossy.loss = 0.01;
  late.delay_us = 50;
  {
    const ActiveFault both(injector, {.kind = Kind::kPackets, .packets = lossy, .interfaces = all, .both_ways = true});
    const ActiveFault one(injector, {.kind = Kind::kPackets, .packets = late, .interfaces = {all[0]}});
    EXPECT_THAT(file(all[0].node), AllOf(HasSubstr("direction=both"), HasSubstr("loss=0.01"), HasSubstr("delay=50us")));
    EXPECT_THAT(file(all[1].node), AllOf(HasSubstr("direction=both"), Not(HasSubstr("delay"))));
    EXPECT_NE(file(all[0].node).substr(0, file(all[0].node).find('\n')) + "\n", file(all[1].node))
        << "the seeds must differ";
  }
  EXPECT_EQ(file(all[0].node), "");
}

TEST_F(InjectorTest, StopsAndKillsTheRanksOfOneHost) {
  const auto launch = [&](const std::string& rank) {
    control::LaunchRequest request;
    request.rank = rank;
    return ranks_.launch(request);
  };
  for (const char* rank : {"a.eth0", "a.eth1", "b.eth0"}) launch(rank);
  {
    const ActiveFault frozen(injector_, {.kind = Kind::kFreeze, .host = "a"});
    EXPECT_EQ(state_of(launcher_.started[0]), 'T');
    EXPECT_EQ(state_of(launcher_.started[1]), 'T');
    EXPECT_NE(state_of(launcher_.started[2]), 'T');
    const pid_t late = launch("a.eth0");
    siginfo_t info{};
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(late), &info, WSTOPPED | WNOWAIT), 0)
        << "a rank that starts later must be stopped too";
  }
  for (const pid_t process : launcher_.started) EXPECT_NE(state_of(process), 'T');
  injector_.begin({.kind = Kind::kKill, .host = "b"});
  siginfo_t info{};
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(launcher_.started[2]), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(info.si_status, SIGKILL);
  EXPECT_NE(state_of(launcher_.started[0]), 'Z');
}

TEST(RoutedFabric, RestoresRoutesWithALink) {
  netns::Fabric fabric(topology::named("fat-tree:2"));
  SleepLauncher launcher;
  RanksByHost ranks(launcher);
  Injector injector(fabric, ranks);
  const topology::Graph& graph = fabric.graph();
  const std::string first = graph.hosts.front().name, last = graph.hosts.back().name;
  const std::string target = graph.hosts.back().interfaces[0].address.text();
  // IPv4 routes only, because the kernel restores the IPv6 link-local address with a delay.
  const auto routes = [&] {
    std::string all;
    for (const topology::Switch& one : graph.switches)
      all += one.name + ":\n" + fabric.run(one.name, {"sh", "-c", "ip -4 route show table all | sort"}).output;
    return all + fabric.run(first, {"sh", "-c", "ip -4 route show table all | sort"}).output;
  };
  const std::string before = routes();
  for (const topology::Link& link : graph.links) {
    Fault fault = {.kind = Kind::kDown};
    for (const topology::LinkEnd& end : link.ends) {
      fault.interfaces.push_back(
          {graph.node_name(end), graph.interface(end).name, end.node == topology::LinkEnd::Node::kHost});
    }
    const ActiveFault down(injector, fault);
  }
  EXPECT_EQ(routes(), before);
  EXPECT_TRUE(reaches(fabric, first, last, target));
}

TEST_F(InjectorTest, RemovesAFaultThatFails) {
  EXPECT_EQ(error_message([&] {
              injector_.begin({.kind = Kind::kDown, .interfaces = {a_eth0_, {"a", "eth7", true}}});
            }),
            "host a: eth7: no such interface");
  EXPECT_THAT(of_a("ip -o link show eth0"), HasSubstr(",UP"));
}

}  // namespace
}  // namespace plugfest::faults
