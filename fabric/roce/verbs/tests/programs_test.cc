// ibverbs-utils and perftest between two hosts.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "fabric/roce/verbs/tests/two_hosts.h"
#include "test_paths.h"

namespace plugfest::roce {

namespace {

std::vector<std::string> joined(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string maps_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Programs, LoadThisLibraryInsteadOfTheSystems) {
  PLUGFEST_NEEDS_PROGRAM("ibv_rc_pingpong");
  TwoHosts hosts;
  HostProcess server = hosts.start("a", {"ibv_rc_pingpong", "-g", "0"});
  server.wait_until_listening(kExchangePort);
  const std::string maps = maps_of(server.pid());
  EXPECT_NE(maps.find(std::string(PLUGFEST_ROCE_FOLDER) + "/libibverbs.so.1"), std::string::npos) << maps;
  if (std::filesystem::exists(PLUGFEST_SYSTEM_IBVERBS)) {
    const std::string system = std::filesystem::canonical(PLUGFEST_SYSTEM_IBVERBS);
    EXPECT_EQ(maps.find(system), std::string::npos) << maps;
  }
}

TEST(Programs, IbvDevicesListsAllInterfacesOfTheHost) {
  PLUGFEST_NEEDS_PROGRAM("ibv_devices");
  TwoHosts hosts;
  const Finished devices = hosts.start("a", {"ibv_devices"}).wait();
  EXPECT_EQ(devices.exit_code, 0);
  EXPECT_NE(devices.output.find("roce_eth0"), std::string::npos) << devices.output;
  EXPECT_NE(devices.output.find("roce_eth1"), std::string::npos) << devices.output;
  EXPECT_EQ(devices.output.find("roce_lo"), std::string::npos) << devices.output;
}

TEST(Programs, IbvDevinfoShowsAnActivePortWithItsGid) {
  PLUGFEST_NEEDS_PROGRAM("ibv_devinfo");
  TwoHosts hosts;
  const Finished info = hosts.start("a", {"ibv_devinfo", "-v", "-d", "roce_eth0"}).wait();
  EXPECT_EQ(info.exit_code, 0) << info.output;
  for (const char* expected : {"PORT_ACTIVE (4)", "active_mtu:\t\t4096 (5)", "link_layer:\t\tEthernet",
                               "pkey_tbl_len:\t\t1", "GID[  0]:\t\t::ffff:192.168.100.1, RoCE v2"})
    EXPECT_NE(info.output.find(expected), std::string::npos) << "no " << expected << " in:\n" << info.output;
}

TEST(Programs, IbvDevinfoShowsAPortThatIsDown) {
  PLUGFEST_NEEDS_PROGRAM("ibv_devinfo");
  TwoHosts hosts;
  hosts.fabric().set_interface_up("b", "eth0", false);  // the peer of a's eth0
  const Finished info = hosts.start("a", {"ibv_devinfo", "-d", "roce_eth0"}).wait();
  EXPECT_NE(info.output.find("PORT_DOWN (1)"), std::string::npos) << info.output;
}

TEST(Programs, FindTheGidTypeInSysfs) {
  TwoHosts hosts;
  const Finished type = hosts.start("a", {"cat", "/sys/class/infiniband/roce_eth1/ports/1/gid_attrs/types/0"}).wait();
  EXPECT_EQ(type.output, "RoCE v2\n");
}

TEST(Programs, CanOpenTheNodeOfEachDevice) {
  TwoHosts hosts;
  const Finished nodes =
      hosts
          .start("a",
                 {"sh", "-c", "for node in /dev/infiniband/uverbs*; do test -c $node && : <>$node && echo open; done"})
          .wait();
  EXPECT_EQ(nodes.output, "open\nopen\n");
}

TEST(Programs, FindTheDevicesOfTheMachine) {
  TwoHosts hosts;
  const Finished found =
      hosts
          .start("a",
                 {"python3", "-c", "import os; os.openpty(); print(len(os.urandom(4)), os.path.isdir('/dev/shm'))"})
          .wait();
  EXPECT_EQ(found.output, "4 True\n");
}

TEST(Programs, RcPingpongPolling) {
  PLUGFEST_NEEDS_PROGRAM("ibv_rc_pingpong");
  TwoHosts hosts;
  hosts.run_server_and_client({"ibv_rc_pingpong", "-g", "0", "-c"});
}

TEST(Programs, RcPingpongWithEvents) {
  PLUGFEST_NEEDS_PROGRAM("ibv_rc_pingpong");
  TwoHosts hosts;
  hosts.run_server_and_client({"ibv_rc_pingpong", "-g", "0", "-c", "-e"});
}

class RcPingpongSizes : public testing::TestWithParam<const char*> {};

TEST_P(RcPingpongSizes, TransfersDataCorrectly) {
  PLUGFEST_NEEDS_PROGRAM("ibv_rc_pingpong");
  TwoHosts hosts;
  hosts.run_server_and_client({"ibv_rc_pingpong", "-g", "0", "-c", "-n", "100", "-m", "4096", "-s", GetParam()});
}

INSTANTIATE_TEST_SUITE_P(Bytes, RcPingpongSizes, testing::Values("1", "3", "4095", "4096", "4097", "65536", "1000001"),
                         [](const auto& info) { return info.param; });

TEST(Programs, SrqPingpong) {
  PLUGFEST_NEEDS_PROGRAM("ibv_srq_pingpong");
  TwoHosts hosts;
  hosts.run_server_and_client({"ibv_srq_pingpong", "-g", "0", "-n", "200"});
}

TEST(Programs, XrcPingpongFails) {
  PLUGFEST_NEEDS_PROGRAM("ibv_xsrq_pingpong");
  TwoHosts hosts;
  const Finished refused = hosts.start("a", {"ibv_xsrq_pingpong", "-d", "roce_eth0", "-g", "0"}).wait();
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(refused.output.ends_with("Couldn't Open the XRC Domain 95\n")) << refused.output;  // EOPNOTSUPP
  std::error_code ignored;  // created by the program; may belong to another user
  std::filesystem::remove("/tmp/xrc_domain", ignored);
}

TEST(Programs, UcPingpong) {
  PLUGFEST_NEEDS_PROGRAM("ibv_uc_pingpong");
  TwoHosts hosts;
  hosts.run_server_and_client({"ibv_uc_pingpong", "-g", "0", "-c", "-n", "100"});
}

TEST(Programs, UdPingpong) {
  PLUGFEST_NEEDS_PROGRAM("ibv_ud_pingpong");
  TwoHosts hosts;
  hosts.run_server_and_client({"ibv_ud_pingpong", "-g", "0", "-c", "-n", "100"});
}

TEST(Programs, UdPingpongWithEvents) {
  PLUGFEST_NEEDS_PROGRAM("ibv_ud_pingpong");
  TwoHosts hosts;
  hosts.run_server_and_client({"ibv_ud_pingpong", "-g", "0", "-c", "-e", "-n", "100"});
}

TEST(Programs, RcPingpongOverLinkLocalIpv6) {
  PLUGFEST_NEEDS_PROGRAM("ibv_rc_pingpong");
  TwoHosts hosts;
  hosts.run_server_and_client({"ibv_rc_pingpong", "-g", "1", "-c", "-n", "100", "-m", "4096", "-s", "65537"});
}

TEST(Programs, UdPingpongOverLinkLocalIpv6) {
  PLUGFEST_NEEDS_PROGRAM("ibv_ud_pingpong");
  TwoHosts hosts;
  hosts.run_server_and_client({"ibv_ud_pingpong", "-g", "1", "-c", "-n", "100"});
}

TEST(Programs, WriteOverGlobalIpv6) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  PLUGFEST_NEEDS_PROGRAM("ibv_devinfo");
  TwoHosts hosts;
  // The first process assigns GIDs 0 and 1 to the IPv4 and the link-local address, so the next address gets GID 2.
  for (const char* host : {"a", "b"}) ASSERT_EQ(hosts.start(host, {"ibv_devinfo"}).wait().exit_code, 0);
  for (const auto& [host, address] : {std::pair("a", "fd00::1/64"), std::pair("b", "fd00::2/64")})
    ASSERT_EQ(hosts.start(host, {"ip", "address", "add", address, "dev", "eth0", "nodad"}).wait().exit_code, 0);
  // Even with nodad, the address is tentative for a short time, during which bind() fails.
  for (const char* host : {"a", "b"}) {
    const std::vector<std::string> tentative = {"ip", "-6", "address", "show", "dev", "eth0", "tentative"};
    while (!hosts.start(host, tentative).wait().output.empty()) continue;
  }
  const std::string table =
      hosts.run_server_and_client({"ib_write_bw", "-d", "roce_eth0", "-F", "-x", "2", "-n", "500"});
  EXPECT_NE(table.find("GID: 253:00:00:00:00:00:00:00:00:00:00:00:00:00:00:01"), std::string::npos) << table;
}

struct Measurement {
  const char* name;
  std::vector<std::string> argv;
};

// Test name in ctest.
void PrintTo(const Measurement& value, std::ostream* out) { *out << value.name; }

class Perftest : public testing::TestWithParam<Measurement> {};

TEST_P(Perftest, Succeeds) {
  PLUGFEST_NEEDS_PROGRAM(GetParam().argv.front());
  TwoHosts hosts;
  const std::string table = hosts.run_server_and_client(joined(GetParam().argv, {"-d", "roce_eth0", "-F"}));
  EXPECT_NE(table.find("#bytes"), std::string::npos) << table;
}

INSTANTIATE_TEST_SUITE_P(
    Of, Perftest,
    testing::Values(Measurement{"SendBandwidth", {"ib_send_bw", "-n", "500"}},
                    Measurement{"SendBandwidthBidirectional", {"ib_send_bw", "-b", "-n", "500"}},
                    Measurement{"SendBandwidthWithEvents", {"ib_send_bw", "-e", "-n", "500"}},
                    Measurement{"SendLatency", {"ib_send_lat", "-n", "200"}},
                    Measurement{"SendLatencyWithEvents", {"ib_send_lat", "-e", "-n", "200"}},
                    Measurement{"WriteBandwidth", {"ib_write_bw", "-n", "500"}},
                    Measurement{"WriteBandwidthBidirectional", {"ib_write_bw", "-b", "-n", "500"}},
                    Measurement{"WriteBandwidthOfManyQueuePairs", {"ib_write_bw", "-q", "16", "-n", "100"}},
                    Measurement{"WriteBandwidthWithIbvPostSend", {"ib_write_bw", "--use_old_post_send", "-n", "500"}},
                    Measurement{"WriteLatency", {"ib_write_lat", "-n", "200"}},
                    Measurement{"UcSendLatency", {"ib_send_lat", "-c", "UC", "-n", "200"}},
                    Measurement{"UcWriteLatency", {"ib_write_lat", "-c", "UC", "-n", "200"}},
                    Measurement{"UdSendLatency", {"ib_send_lat", "-c", "UD", "-n", "200"}},
                    // At most the capacity of the receiver's socket: lost messages are not retransmitted.
                    Measurement{"UcSendBandwidth", {"ib_send_bw", "-c", "UC", "-n", "40", "-s", "4096"}},
                    Measurement{"UcWriteBandwidth", {"ib_write_bw", "-c", "UC", "-n", "500"}},
                    Measurement{"UdSendBandwidth", {"ib_send_bw", "-c", "UD", "-n", "40", "-s", "4096"}},
                    Measurement{"ReadBandwidth", {"ib_read_bw", "-n", "500"}},
                    Measurement{"ReadLatency", {"ib_read_lat", "-n", "200"}},
                    Measurement{"AtomicBandwidth", {"ib_atomic_bw", "-n", "500"}},
                    Measurement{"AtomicLatency", {"ib_atomic_lat", "-A", "CMP_AND_SWAP", "-n", "200"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace

namespace {

TEST(Asyncwatch, ReportsPortDownPortUpAndAddressChange) {
  PLUGFEST_NEEDS_PROGRAM("ibv_asyncwatch");
  TwoHosts hosts;
  HostProcess watch = hosts.start("a", {"ibv_asyncwatch", "-d", "roce_eth0"});
  watch.wait_until_printed("roce_eth0: async event FD");
  hosts.fabric().set_interface_up("b", "eth0", false);
  watch.wait_until_printed("event_type IBV_EVENT_PORT_ERR (10), port 1");
  hosts.fabric().set_interface_up("b", "eth0", true);
  watch.wait_until_printed("event_type IBV_EVENT_PORT_ACTIVE (9), port 1");
  const topology::Ipv4Address before = hosts.fabric().graph().host("a").interfaces.at(0).address;
  hosts.fabric().change_address("a", "eth0", before, {before.value + 76});
  watch.wait_until_printed("event_type IBV_EVENT_GID_CHANGE (18), port 1");
}

}  // namespace

namespace {

constexpr int kNotInstalled = 77;

TEST(Pyverbs, PassesItsTests) {
  PLUGFEST_NEEDS_PROGRAM("/usr/bin/python3");
  TwoHosts hosts;
  const Finished tests =
      hosts.start("a", {"timeout", "200", "/usr/bin/python3", "-B", PLUGFEST_RUN_PYVERBS, "roce_eth0"}).wait();
  if (tests.exit_code == kNotInstalled) GTEST_SKIP() << "needs the tests of the package python3-pyverbs";
  EXPECT_EQ(tests.exit_code, 0) << tests.output;
}

}  // namespace

}  // namespace plugfest::roce
