// Packets on the wire, checked with Wireshark and scapy.
#include <gmock/gmock.h>

#include <memory>
#include <sstream>

#include "fabric/roce/capture/packet_log.h"
#include "fabric/roce/faults/plan.h"
#include "fabric/roce/verbs/tests/two_hosts.h"
#include "fabric/system/testing.h"
#include "test_paths.h"

namespace plugfest::roce::verbs {
namespace {

constexpr int kScapyIsMissing = 77;

// Expert information for all packets of ibv_rc_pingpong, which sets a hop limit of 1.
constexpr const char* kHopLimitOf1 = "\"Time To Live\" only 1";

// Expects that Wireshark dissects all packets as InfiniBand without expert information.
void expect_clean_dissection(TwoHosts& hosts, const std::filesystem::path& file) {
  const std::vector<std::string> rows =
      hosts.dissect(file, {"-Y", "udp.port == 4791 && !icmp", "-T", "fields", "-E", "separator=|", "-e", "frame.number",
                           "-e", "frame.protocols", "-e", "_ws.expert.message", "-e", "infiniband.bth.opcode"});
  EXPECT_FALSE(rows.empty());
  for (const std::string& row : rows) {
    std::istringstream fields(row);
    std::string number, protocols, expert_info, opcode;
    std::getline(fields, number, '|');
    std::getline(fields, protocols, '|');
    std::getline(fields, expert_info, '|');
    std::getline(fields, opcode, '|');
    EXPECT_TRUE(protocols.starts_with("eth:ethertype:ip:udp:infiniband") ||
                protocols.starts_with("eth:ethertype:ipv6:udp:infiniband"))
        << row;
    EXPECT_EQ(protocols.find("malformed"), std::string::npos) << row;
    EXPECT_TRUE(expert_info.empty() || expert_info == kHopLimitOf1) << row;
    EXPECT_FALSE(opcode.empty()) << row;
  }
}

void expect_icrc_of_scapy(TwoHosts& hosts, const std::filesystem::path& file) {
  PLUGFEST_NEEDS_PROGRAM("/usr/bin/python3");
  const Finished checked = hosts.start("a", {"/usr/bin/python3", PLUGFEST_CHECK_ICRC, file.string()}).wait();
  if (checked.exit_code == kScapyIsMissing) GTEST_SKIP() << checked.output;
  EXPECT_EQ(checked.exit_code, 0) << checked.output;
}

class Packets : public testing::TestWithParam<CommandLine> {};

TEST_P(Packets, AreDissectedWithoutErrorsAndHaveTheIcrcThatScapyComputes) {
  PLUGFEST_NEEDS_PROGRAM(GetParam().argv.front());
  TwoHosts hosts;
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "packets.pcap";
  BackgroundCapture capture(hosts.fabric(), "a", file);
  hosts.run_server_and_client(GetParam().argv);
  ASSERT_GT(capture.stop(), 0u);
  expect_icrc_of_scapy(hosts, file);
  PLUGFEST_NEEDS_PROGRAM("tshark");
  expect_clean_dissection(hosts, file);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Packets,
    testing::Values(
        CommandLine{"SendsThatFillPackets", {"ibv_rc_pingpong", "-g", "0", "-n", "20", "-m", "1024", "-s", "65536"}},
        CommandLine{"SendsThatNeedPadding", {"ibv_rc_pingpong", "-g", "0", "-n", "20", "-m", "1024", "-s", "5001"}},
        CommandLine{"Writes", {"ib_write_bw", "-d", "roce_eth0", "-F", "-n", "20", "-s", "65536"}},
        CommandLine{"Reads", {"ib_read_bw", "-d", "roce_eth0", "-F", "-n", "20", "-s", "65536"}},
        CommandLine{"UnreliableSends", {"ibv_uc_pingpong", "-g", "0", "-n", "20", "-m", "1024", "-s", "5001"}},
        CommandLine{"UnreliableWrites",
                    {"ib_write_bw", "-c", "UC", "-d", "roce_eth0", "-F", "-n", "20", "-s", "65536"}},
        CommandLine{"Datagrams", {"ibv_ud_pingpong", "-g", "0", "-n", "20", "-s", "1001"}},
        CommandLine{"SendsOverIpv6", {"ibv_rc_pingpong", "-g", "1", "-n", "20", "-m", "1024", "-s", "5001"}},
        CommandLine{"DatagramsOverIpv6", {"ibv_ud_pingpong", "-g", "1", "-n", "20", "-s", "1001"}},
        CommandLine{"Atomics", {"ib_atomic_bw", "-d", "roce_eth0", "-F", "-n", "20"}}),
    [](const auto& info) { return info.param.name; });

constexpr const char* kDevice = "/sys/class/infiniband/roce_eth0";

class NicLog : public testing::Test {
 protected:
  NicLog() {
    hosts_.fabric().call("a", [&] { set_device_log(kDevice, file_); });
  }

  // Runs several pairs of ib_write_bw in parallel, with messages of 65,000 bytes from b to a.
  void write_bandwidth(int pairs) {
    std::vector<std::unique_ptr<ServerAndClient>> running;
    for (int i = 0; i < pairs; ++i) {
      const auto port = static_cast<std::uint16_t>(kExchangePort + i);
      const std::vector<std::string> argv = {"ib_write_bw", "-d", "roce_eth0", "-F", "-n",
                                             "20",          "-s", "65000",     "-p", std::to_string(port)};
      running.push_back(std::make_unique<ServerAndClient>(hosts_, argv, port));
    }
    for (const auto& programs : running) programs->expect_success();
  }

  // Returns one row per packet: protocols|opcode|direction|expert information|comment.
  std::vector<std::string> dissect() {
    return hosts_.dissect(
        file_, {"-T", "fields", "-E", "separator=|", "-e", "frame.protocols", "-e", "infiniband.bth.opcode", "-e",
                "frame.packet_flags_direction", "-e", "_ws.expert.message", "-e", "frame.comment"});
  }

  TwoHosts hosts_;
  ScratchFolder folder_;
  const std::filesystem::path file_ = folder_ / "a.pcapng";
};

TEST_F(NicLog, HasAllPacketsOfAllProcessesWithTheIcrcThatScapyComputes) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  write_bandwidth(2);
  expect_icrc_of_scapy(hosts_, file_);
  PLUGFEST_NEEDS_PROGRAM("tshark");
  const std::vector<std::string> rows = dissect();
  const Counters counted = hosts_.counters("a");
  EXPECT_EQ(rows.size(), counted.sent_packets + counted.received_packets);
  for (const std::string& row : rows)
    ASSERT_THAT(row, testing::MatchesRegex("raw:ip:udp:infiniband[^|]*\\|[0-9]+\\|0x0000000[12]\\|\\|")) << row;
}

TEST_F(NicLog, CommentsChangesOfFaults) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  PLUGFEST_NEEDS_PROGRAM("tshark");
  const FaultPlan plan = parse_faults("direction=in,loss=5%,seed=3");
  hosts_.fabric().call("a", [&] { set_device_faults(kDevice, {&plan, 1}); });
  write_bandwidth(1);
  const std::vector<std::string> rows = dissect();
  const Counters counted = hosts_.counters("a");
  EXPECT_GT(counted.fault_drops, 0u);
  EXPECT_EQ(rows.size(), counted.sent_packets + counted.received_packets);
  ASSERT_FALSE(rows.empty());
  EXPECT_THAT(rows.front(), testing::EndsWith("|faults from here: direction=in,loss=0.05,seed=3"));
}

}  // namespace
}  // namespace plugfest::roce::verbs
