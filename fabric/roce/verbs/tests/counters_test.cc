// Counter files of a host while programs run and after they have ended.
#include <gmock/gmock.h>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/faults/plan.h"
#include "fabric/roce/verbs/tests/two_hosts.h"
#include "fabric/system/testing.h"

namespace plugfest::roce::verbs {
namespace {

constexpr const char* kDevice = "/sys/class/infiniband/roce_eth0";

class SysfsCounters : public testing::Test {
 protected:
  std::uint64_t read(const std::string& host, const std::string& file) {
    const Finished cat = hosts_.start(host, {"cat", std::string(kDevice) + "/ports/1/" + file}).wait();
    EXPECT_EQ(cat.exit_code, 0) << cat.output;
    EXPECT_TRUE(cat.output.ends_with('\n')) << cat.output;
    return std::stoull(cat.output);
  }

  void set_faults(const std::string& host, const char* words) {
    const FaultPlan plan = parse_faults(words);
    hosts_.fabric().call(host, [&] { set_device_faults(kDevice, {&plan, 1}); });
  }

  // Writes 80 times 64 KiB from b to a.
  void write_bandwidth() {
    hosts_.run_server_and_client({"ib_write_bw", "-d", "roce_eth0", "-F", "-n", "80", "-s", "65536"});
  }

  TwoHosts hosts_;
};

constexpr std::uint64_t kPacketsPerRun = 80 * 65536 / 4096;

TEST_F(SysfsCounters, SumUpProgramsThatHaveEnded) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  write_bandwidth();
  const std::uint64_t first = read("b", "counters/port_xmit_packets");
  EXPECT_GE(first, kPacketsPerRun);
  EXPECT_GE(read("b", "counters/port_xmit_data"), kPacketsPerRun * 4096 / 4);
  EXPECT_EQ(read("b", "hw_counters/sent_pkts"), first);
  write_bandwidth();
  EXPECT_GE(read("b", "counters/port_xmit_packets"), first + kPacketsPerRun);
  EXPECT_GE(read("a", "counters/port_rcv_packets"), 2 * kPacketsPerRun);
  EXPECT_EQ(read("a", "hw_counters/rx_icrc_encapsulated"), 0u);
}

TEST_F(SysfsCounters, CountInjectedFaults) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  set_faults("b", "loss=1%,corrupt=2%,seed=11");
  write_bandwidth();
  EXPECT_GT(read("b", "hw_counters/fault_drops"), 0u);
  const std::uint64_t corrupted = read("b", "hw_counters/fault_corruptions");
  EXPECT_GT(corrupted, 0u);
  EXPECT_GT(read("b", "hw_counters/retransmitted_packets"), 0u);
  EXPECT_GT(read("a", "hw_counters/out_of_sequence"), 0u);
  EXPECT_GT(read("a", "hw_counters/rx_icrc_encapsulated"), 0u);
  EXPECT_LE(read("a", "hw_counters/rx_icrc_encapsulated"), corrupted);
  EXPECT_EQ(read("a", "hw_counters/malformed_packets"), 0u);
  EXPECT_EQ(read("a", "hw_counters/unknown_queue_pairs"), 0u);
}

TEST_F(SysfsCounters, GrowWhileAProgramRunsAndSurviveSigkill) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  ServerAndClient programs(hosts_, {"ib_write_bw", "-d", "roce_eth0", "-F", "-n", "100000000", "-s", "4096"});
  std::uint64_t seen = 0;
  for (int increases = 0; increases < 3;) {
    ASSERT_FALSE(programs.client().has_exited()) << programs.client().output();
    const std::uint64_t now = read("b", "counters/port_xmit_packets");
    ASSERT_GE(now, seen);
    increases += now > seen ? 1 : 0;
    seen = now;
  }
  programs.kill();
  std::vector<DeviceCounters> devices;
  hosts_.fabric().call("b", [&] { devices = read_counters(); });
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].device, "roce_eth0");
  EXPECT_GE(devices[0].counters.sent_packets, seen);
  const std::uint64_t after_kill = devices[0].counters.sent_packets;
  write_bandwidth();
  EXPECT_GE(read("b", "counters/port_xmit_packets"), after_kill + kPacketsPerRun);
}

// The client sends all packets with the congestion mark, as if from a congested switch.
TEST(Ecn, MarksCauseNotificationsThatWiresharkDissects) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  PLUGFEST_NEEDS_PROGRAM("tshark");
  TwoHosts hosts;
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "packets.pcap";
  BackgroundCapture capture(hosts.fabric(), "b", file);
  const auto command = [](const char* ecn) {
    return std::vector<std::string>{"env", ecn, "ib_write_bw", "-d", "roce_eth0", "-F", "-n", "5", "--tclass=3"};
  };
  ServerAndClient(hosts, command("PLUGFEST_ROCE_ECN=1"), kExchangePort, command("PLUGFEST_ROCE_ECN=0"))
      .expect_success();
  EXPECT_GT(hosts.counters("a").marked_packets, 0u);
  EXPECT_GT(hosts.counters("a").sent_notifications, 0u);
  EXPECT_GT(hosts.counters("b").handled_notifications, 0u);

  ASSERT_GT(capture.stop(), 0u);
  // Ethernet 14, IPv4 20, UDP 8, BTH 12, reserved 16, ICRC 4; no expert information.
  EXPECT_THAT(hosts.dissect(file, {"-Y", "infiniband.bth.opcode == 0x81", "-T", "fields", "-E", "separator=|", "-e",
                                   "frame.len", "-e", "_ws.expert.message"}),
              testing::Contains("74|"));
}

TEST(Ecn, InvalidSettingIsRejected) {
  PLUGFEST_NEEDS_PROGRAM("ibv_devinfo");
  TwoHosts hosts;
  const Finished finished = hosts.start("a", {"env", "PLUGFEST_ROCE_ECN=maybe", "ibv_devinfo"}).wait();
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_NE(finished.output.find("plugfest: PLUGFEST_ROCE_ECN \"maybe\": expected 0 or 1\n"), std::string::npos)
      << finished.output;
}

}  // namespace
}  // namespace plugfest::roce::verbs
