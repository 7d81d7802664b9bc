// ibverbs-utils, ib_write_bw over IPv6, and the tests of pyverbs, on two hosts.
#include <utility>
#include <vector>

#include "fabric/roce/verbs/tests/two_hosts.h"
#include "fabric/system/wait.h"
#include "test_paths.h"

namespace plugfest::roce::verbs {
namespace {

class Programs : public testing::Test {
 protected:
  Finished run(const std::vector<std::string>& argv) { return hosts_.start("a", argv).wait(); }

  TwoHosts hosts_;
};

TEST_F(Programs, LoadThisLibraryInsteadOfTheSystems) {
  PLUGFEST_NEEDS_PROGRAM("ibv_rc_pingpong");
  HostProcess server = hosts_.start("a", {"ibv_rc_pingpong", "-g", "0"});
  server.wait_until_listening(kExchangePort);
  const std::string maps = read_file("/proc/" + std::to_string(server.pid()) + "/maps");
  EXPECT_NE(maps.find(std::string(PLUGFEST_ROCE_FOLDER) + "/libibverbs.so.1"), std::string::npos) << maps;
  if (std::filesystem::exists(PLUGFEST_SYSTEM_IBVERBS)) {
    const std::string system = std::filesystem::canonical(PLUGFEST_SYSTEM_IBVERBS);
    EXPECT_EQ(maps.find(system), std::string::npos) << maps;
  }
}

TEST_F(Programs, IbvDevicesListsAllInterfacesOfTheHost) {
  PLUGFEST_NEEDS_PROGRAM("ibv_devices");
  const Finished devices = run({"ibv_devices"});
  EXPECT_EQ(devices.exit_code, 0);
  EXPECT_NE(devices.output.find("roce_eth0"), std::string::npos) << devices.output;
  EXPECT_NE(devices.output.find("roce_eth1"), std::string::npos) << devices.output;
  EXPECT_EQ(devices.output.find("roce_lo"), std::string::npos) << devices.output;
}

TEST_F(Programs, IbvDevinfoShowsAnActivePortWithItsGid) {
  PLUGFEST_NEEDS_PROGRAM("ibv_devinfo");
  const Finished info = run({"ibv_devinfo", "-v", "-d", "roce_eth0"});
  EXPECT_EQ(info.exit_code, 0) << info.output;
  for (const char* expected : {"PORT_ACTIVE (4)", "active_mtu:\t\t4096 (5)", "link_layer:\t\tEthernet",
                               "pkey_tbl_len:\t\t1", "GID[  0]:\t\t::ffff:192.168.100.1, RoCE v2"})
    EXPECT_NE(info.output.find(expected), std::string::npos) << "no " << expected << " in:\n" << info.output;
}

TEST_F(Programs, IbvDevinfoShowsAPortThatIsDown) {
  PLUGFEST_NEEDS_PROGRAM("ibv_devinfo");
  hosts_.fabric().set_interface_up("b", "eth0", false);  // the peer of a's eth0
  const Finished info = run({"ibv_devinfo", "-d", "roce_eth0"});
  EXPECT_NE(info.output.find("PORT_DOWN (1)"), std::string::npos) << info.output;
}

TEST_F(Programs, CanOpenTheNodeOfEachDevice) {
  const Finished nodes =
      run({"sh", "-c", "for node in /dev/infiniband/uverbs*; do test -c $node && : <>$node && echo open; done"});
  EXPECT_EQ(nodes.output, "open\nopen\n");
}

TEST_F(Programs, FindTheDevicesOfTheMachine) {
  const Finished found =
      run({"python3", "-c", "import os; os.openpty(); print(len(os.urandom(4)), os.path.isdir('/dev/shm'))"});
  EXPECT_EQ(found.output, "4 True\n");
}

std::vector<CommandLine> pingpongs() {
  std::vector<CommandLine> lines = {
      {"RcPolling", {"ibv_rc_pingpong", "-g", "0", "-c"}},
      {"RcWithEvents", {"ibv_rc_pingpong", "-g", "0", "-c", "-e"}},
      {"Srq", {"ibv_srq_pingpong", "-g", "0", "-n", "200"}},
      {"Xrc", {"ibv_xsrq_pingpong", "-g", "0", "-n", "200"}},
      {"Uc", {"ibv_uc_pingpong", "-g", "0", "-c", "-n", "100"}},
      {"Ud", {"ibv_ud_pingpong", "-g", "0", "-c", "-n", "100"}},
      {"UdWithEvents", {"ibv_ud_pingpong", "-g", "0", "-c", "-e", "-n", "100"}},
      {"RcOverLinkLocalIpv6", {"ibv_rc_pingpong", "-g", "1", "-c", "-n", "100", "-m", "4096", "-s", "65537"}},
      {"UdOverLinkLocalIpv6", {"ibv_ud_pingpong", "-g", "1", "-c", "-n", "100"}}};
  for (const std::string bytes : {"1", "3", "4095", "4096", "4097", "65536", "1000001"})
    lines.push_back({"RcBytes" + bytes, {"ibv_rc_pingpong", "-g", "0", "-c", "-n", "100", "-m", "4096", "-s", bytes}});
  return lines;
}

class Pingpong : public Programs, public testing::WithParamInterface<CommandLine> {};

TEST_P(Pingpong, TransfersDataCorrectly) {
  PLUGFEST_NEEDS_PROGRAM(GetParam().argv.front());
  hosts_.run_server_and_client(GetParam().argv);
}

INSTANTIATE_TEST_SUITE_P(Verbs, Pingpong, testing::ValuesIn(pingpongs()),
                         [](const auto& info) { return info.param.name; });

TEST_F(Programs, WriteOverGlobalIpv6) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  PLUGFEST_NEEDS_PROGRAM("ibv_devinfo");
  // The first process assigns GIDs 0 and 1 to the IPv4 and the link-local address, so the next address gets GID 2.
  for (const char* host : {"a", "b"}) ASSERT_EQ(hosts_.start(host, {"ibv_devinfo"}).wait().exit_code, 0);
  for (const auto& [host, address] : {std::pair("a", "fd00::1/64"), std::pair("b", "fd00::2/64")})
    ASSERT_EQ(hosts_.start(host, {"ip", "address", "add", address, "dev", "eth0", "nodad"}).wait().exit_code, 0);
  // Even with nodad, the address is tentative for a short time, during which bind() fails.
  for (const char* host : {"a", "b"}) {
    const std::vector<std::string> tentative = {"ip", "-6", "address", "show", "dev", "eth0", "tentative"};
    ASSERT_TRUE(wait_until([&] { return hosts_.start(host, tentative).wait().output.empty(); }));
  }
  const std::string table =
      hosts_.run_server_and_client({"ib_write_bw", "-d", "roce_eth0", "-F", "-x", "2", "-n", "500"});
  EXPECT_NE(table.find("GID: 253:00:00:00:00:00:00:00:00:00:00:00:00:00:00:01"), std::string::npos) << table;
}

constexpr int kNotInstalled = 77;

TEST(Pyverbs, PassesItsTests) {
  PLUGFEST_NEEDS_PROGRAM("/usr/bin/python3");
  TwoHosts hosts;
  const Finished tests = hosts
                             .start("a", {"env", kConnectionManager, "timeout", "200", "/usr/bin/python3", "-B",
                                          PLUGFEST_RUN_PYVERBS, "roce_eth0"})
                             .wait();
  if (tests.exit_code == kNotInstalled) GTEST_SKIP() << "needs the tests of the package python3-pyverbs";
  EXPECT_EQ(tests.exit_code, 0) << tests.output;
}

}  // namespace
}  // namespace plugfest::roce::verbs
