// ECN marks and congestion notifications between programs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "fabric/roce/counters/names.h"
#include "fabric/roce/verbs/testing/background_capture.h"
#include "fabric/roce/verbs/testing/two_hosts.h"
#include "fabric/system/testing.h"
#include "test_paths.h"

namespace plugfest::roce {
namespace {

HostProcess start(TwoHosts& hosts, const std::string& host, std::vector<std::string> argv, const char* ecn) {
  return HostProcess(hosts.fabric(), host, argv,
                     {{"LD_LIBRARY_PATH", PLUGFEST_ROCE_FOLDER}, {"PLUGFEST_ROCE_ECN", ecn}});
}

Counters counters_of(TwoHosts& hosts, const std::string& host) {
  Counters sum;
  hosts.fabric().call(host, [&] {
    for (const DeviceCounters& device : read_counters()) sum = sum + device.counters;
  });
  return sum;
}

// The client sends all packets with the congestion mark, as if from a congested switch.
TEST(Ecn, MarksCauseNotificationsThatWiresharkDissects) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  PLUGFEST_NEEDS_PROGRAM("tshark");
  TwoHosts hosts;
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "packets.pcap";
  BackgroundCapture capture(hosts.fabric(), "b", file);
  const std::vector<std::string> argv = {"ib_write_bw", "-d", "roce_eth0", "-F",        "-n",
                                         "5",           "-s", "65536",     "--tclass=3"};
  HostProcess server = start(hosts, "a", argv, "1");
  server.wait_until_listening(kExchangePort);
  std::vector<std::string> client_argv = argv;
  client_argv.push_back(hosts.address_of_a());
  HostProcess client = start(hosts, "b", client_argv, "0");
  const netns::Finished of_client = client.wait();
  EXPECT_EQ(of_client.exit_code, 0) << of_client.output;
  const netns::Finished of_server = server.wait();
  EXPECT_EQ(of_server.exit_code, 0) << of_server.output;
  EXPECT_GT(counters_of(hosts, "a").marked_packets, 0u);
  EXPECT_GT(counters_of(hosts, "a").sent_notifications, 0u);
  EXPECT_GT(counters_of(hosts, "b").handled_notifications, 0u);

  ASSERT_GT(capture.stop(), 0u);
  const netns::Finished dissected =
      hosts
          .start("a", {"tshark", "-n", "-r", file.string(), "-Y", "infiniband.bth.opcode == 0x81", "-T", "fields", "-E",
                       "separator=|", "-e", "frame.len", "-e", "_ws.expert.message"})
          .wait();
  EXPECT_EQ(dissected.exit_code, 0) << dissected.output;
  // Ethernet 14, IPv4 20, UDP 8, BTH 12, reserved 16, ICRC 4; no expert information.
  EXPECT_NE(dissected.output.find("74|\n"), std::string::npos) << dissected.output;
}

TEST(Ecn, InvalidSettingIsRejected) {
  PLUGFEST_NEEDS_PROGRAM("ibv_devinfo");
  TwoHosts hosts;
  const netns::Finished finished = start(hosts, "a", {"ibv_devinfo", "-d", "roce_eth0"}, "maybe").wait();
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_NE(finished.output.find("plugfest: PLUGFEST_ROCE_ECN \"maybe\": expected 0 or 1\n"), std::string::npos)
      << finished.output;
}

}  // namespace
}  // namespace plugfest::roce
