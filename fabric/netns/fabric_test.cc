#include "fabric/netns/fabric.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "fabric/netns/packet_capture.h"
#include "fabric/netns/testing/udp_sockets.h"
#include "fabric/system/testing.h"

namespace plugfest::netns {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using topology::Graph;
using topology::Ipv4Address;

std::string output_of(Fabric& fabric, const std::string& host, const std::string& script) {
  return fabric.run(host, {"sh", "-c", script}).output;
}

class TriangleFabric : public testing::Test {
 protected:
  Fabric fabric_{topology::named("triangle")};
};

TEST_F(TriangleFabric, CapturesAllPacketsThatArrivedBeforeTheEnd) {
  constexpr std::size_t kPackets = 400;  // 3 MB
  PacketCapture capture(fabric_, "a");
  const Descriptor from = udp_socket(fabric_, "b");
  const Descriptor to = udp_socket(fabric_, "a");
  const Ipv4Address address = fabric_.graph().hosts[0].interfaces[0].address;
  for (std::size_t i = 0; i < kPackets; ++i) deliver(from, address, to, std::string(8000, 'x'));
  const Descriptor file(open("/dev/null", O_WRONLY | O_CLOEXEC));
  const std::atomic<bool> stop = true;
  const PacketCapture::Count count = capture.write(file.get(), stop);
  EXPECT_EQ(count.written + count.dropped, kPackets) << "an unprivileged user's socket holds fewer and counts the rest";
  EXPECT_GT(count.written, 0u);
}

TEST_F(TriangleFabric, HasNoRouteToTheOtherAddressesOfAPeer) {
  const Graph& graph = fabric_.graph();
  for (const topology::Host& host : graph.hosts) {
    const Descriptor socket = udp_socket(fabric_, host.name);
    for (const topology::Host& peer : graph.hosts) {
      for (const topology::Interface& interface : peer.interfaces) {
        const bool shares_link = std::any_of(host.interfaces.begin(), host.interfaces.end(),
                                             [&](const auto& own) { return own.link == interface.link; });
        if (shares_link) continue;
        EXPECT_LT(send_to(socket, interface.address, "x"), 0);
        EXPECT_EQ(errno, ENETUNREACH) << host.name << " to " << interface.address.text();
      }
    }
  }
}

TEST_F(TriangleFabric, ShowsOnlyTheHostsInterfaces) {
  EXPECT_EQ(output_of(fabric_, "a", "ls /sys/class/net"), "eth0\neth1\nlo\n");
  EXPECT_EQ(output_of(fabric_, "a", "cat /sys/class/net/eth1/mtu"), "9000\n");
  EXPECT_EQ(output_of(fabric_, "a", "cat /sys/class/net/eth1/operstate"), "up\n");
  EXPECT_EQ(output_of(fabric_, "a", "realpath /sys/class/net/eth1"), "/sys/devices/virtual/net/eth1\n");
  EXPECT_THAT(output_of(fabric_, "c", "ip -4 -o addr show eth1"), HasSubstr("192.168.102.2/24"));
}

TEST_F(TriangleFabric, ShowsTheMachinesClassesAndAnEmptyInfiniband) {
  EXPECT_EQ(output_of(fabric_, "b", "ls /sys/class/infiniband"), "");
  for (const char* name : {"mem", "tty"})
    EXPECT_EQ(fabric_.run("b", {"test", "-e", std::string("/sys/class/") + name + "/."}).exit_code, 0) << name;
}

// A program that is killed, such as a rank of NCCL, leaves files in its shared memory.
TEST_F(TriangleFabric, GivesEachHostSharedMemoryOfItsOwn) {
  if (access("/dev/shm", F_OK) != 0) GTEST_SKIP() << "this machine has no /dev/shm";
  EXPECT_EQ(output_of(fabric_, "a", "echo text >/dev/shm/left-behind; ls /dev/shm"), "left-behind\n");
  EXPECT_EQ(output_of(fabric_, "a", "ls /dev/shm"), "left-behind\n") << "shared by the processes of a host";
  EXPECT_EQ(output_of(fabric_, "b", "ls /dev/shm"), "");
  EXPECT_NE(access("/dev/shm/left-behind", F_OK), 0);
}

TEST_F(TriangleFabric, ResolvesTheNamesOfAllHosts) {
  EXPECT_EQ(output_of(fabric_, "a", "getent ahostsv4 a | head -1 | cut -d' ' -f1"), "192.168.100.1\n");
  EXPECT_EQ(output_of(fabric_, "a", "getent hosts 192.168.102.2 | tr -s ' '"), "192.168.102.2 c\n");
  EXPECT_EQ(output_of(fabric_, "b", "tail -n +9 /etc/hosts"), read_file("/etc/hosts")) << "the machine's lines";
  // The loopback interface, which is asked without a name server, refuses at once.
  EXPECT_EQ(output_of(fabric_, "a", "getent hosts no-such-host.test; cat /etc/resolv.conf"),
            "# Hosts of a fabric have no name server.\n");
}

TEST_F(TriangleFabric, HasLinkLocalAddressesAtOnce) {
  if (access("/proc/self/net/if_inet6", F_OK) != 0) GTEST_SKIP() << "this kernel has no IPv6";
  const std::string address = output_of(fabric_, "a", "ip -6 -o addr show eth0");
  EXPECT_THAT(address, HasSubstr("fe80::"));
  EXPECT_THAT(address, testing::Not(HasSubstr("tentative")));
}

TEST_F(TriangleFabric, RepeatsLostArpRequestsSoon) {
  EXPECT_EQ(output_of(fabric_, "a", "cd /proc/sys/net/ipv4/neigh/eth1 && cat retrans_time_ms mcast_solicit"),
            "100\n30\n");
}

TEST_F(TriangleFabric, DoesNotChangeTheCallersNamespaces) {
  EXPECT_THAT(read_file("/proc/self/net/dev"), testing::Not(HasSubstr("veth")));
  EXPECT_NE(access("/sys/class/infiniband/plugfest", F_OK), 0);
}

TEST_F(TriangleFabric, RefusesAnUnknownHost) {
  EXPECT_EQ(error_message([&] { fabric_.run("d", {"true"}); }),
            "no host \"d\" in topology triangle: its hosts are a, b, c");
}

TEST(Preparation, RunsInsideEveryHost) {
  Options options;
  options.prepare_host = [](const topology::Host& host) {
    std::ofstream("/sys/class/infiniband/who") << host.name << host.interfaces.size();
  };
  Fabric fabric(topology::named("triangle"), options);
  EXPECT_EQ(output_of(fabric, "a", "cat /sys/class/infiniband/who"), "a2");
  EXPECT_EQ(output_of(fabric, "c", "cat /sys/class/infiniband/who"), "c2");
  EXPECT_NE(access("/sys/class/infiniband/who", F_OK), 0);
}

TEST(Preparation, NamesTheHostInAnError) {
  Options options;
  options.prepare_host = [](const topology::Host& host) {
    if (host.name == "b") throw std::runtime_error("no space");
  };
  EXPECT_EQ(error_message([&] { Fabric(topology::named("triangle"), options); }), "host b: no space");
}

TEST(OutOfBand, ReachesEveryHostFromEveryHost) {
  Options options;
  options.out_of_band = true;
  Fabric fabric(topology::named("triangle"), options);
  std::vector<Descriptor> sockets;
  for (const char* host : {"a", "b", "c"}) sockets.push_back(udp_socket(fabric, host));
  EXPECT_EQ(fabric.out_of_band_address("c").text(), "10.255.0.3");
  EXPECT_EQ(deliver(sockets[0], fabric.out_of_band_address("b"), sockets[1], "x"), "10.255.0.1 x");
  EXPECT_EQ(deliver(sockets[2], fabric.out_of_band_address("b"), sockets[1], "x"), "10.255.0.3 x");
  EXPECT_EQ(output_of(fabric, "a", "ls /sys/class/net"), "eth0\neth1\nlo\noob0\n");
}

TEST(OutOfBand, IsAbsentByDefault) {
  const Fabric fabric(topology::named("triangle"));
  EXPECT_EQ(error_message([&] { fabric.out_of_band_address("a"); }), "this fabric has no out-of-band network");
}

TEST_F(TriangleFabric, LosesCarrierWhenThePeerGoesDown) {
  fabric_.set_interface_up("b", "eth0", false);
  EXPECT_EQ(output_of(fabric_, "a", "cat /sys/class/net/eth0/carrier"), "0\n");
  EXPECT_EQ(output_of(fabric_, "a", "cat /sys/class/net/eth1/carrier"), "1\n");
  fabric_.set_interface_up("b", "eth0", true);
  EXPECT_EQ(output_of(fabric_, "a", "cat /sys/class/net/eth0/carrier"), "1\n");
  const Descriptor a = udp_socket(fabric_, "a");
  const Descriptor b = udp_socket(fabric_, "b");
  EXPECT_EQ(deliver(a, fabric_.graph().host("b").interfaces[0].address, b, "x"), "192.168.100.1 x");
  EXPECT_EQ(error_message([&] { fabric_.set_interface_up("b", "eth7", true); }), "host b: eth7: no such interface");
}

TEST_F(TriangleFabric, TurnsUdpSegmentationOffAndOn) {
  const std::string show = "ethtool -k eth0 | grep tx-udp-segmentation";
  fabric_.set_udp_segmentation("a", "eth0", false);
  EXPECT_THAT(output_of(fabric_, "a", show), HasSubstr("off"));
  fabric_.set_udp_segmentation("a", "eth0", true);
  EXPECT_THAT(output_of(fabric_, "a", show), HasSubstr("on"));
  EXPECT_EQ(error_message([&] { fabric_.set_udp_segmentation("a", "eth9", false); }),
            "cannot access the features of eth9: No such device");
}

}  // namespace
}  // namespace plugfest::netns
