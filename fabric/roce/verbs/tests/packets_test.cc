// Packets on the wire, checked with Wireshark and scapy.
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "fabric/roce/verbs/testing/background_capture.h"
#include "fabric/roce/verbs/testing/two_hosts.h"
#include "fabric/system/testing.h"
#include "test_paths.h"

namespace plugfest::roce {
namespace {

constexpr int kScapyIsMissing = 77;

// Runs a program on both hosts and captures the packets of host a.
void capture_traffic(const std::vector<std::string>& argv, const std::filesystem::path& file) {
  TwoHosts hosts;
  BackgroundCapture capture(hosts.fabric(), "a", file);
  hosts.run_server_and_client(argv);
  ASSERT_GT(capture.stop(), 0u);
}

// Expert information for all packets of ibv_rc_pingpong, which sets a hop limit of 1.
constexpr const char* kHopLimitOf1 = "\"Time To Live\" only 1";

// Expects that Wireshark dissects all packets as InfiniBand without expert information.
void expect_clean_dissection(const std::filesystem::path& file) {
  TwoHosts hosts;  // to run tshark and capture its output
  const netns::Finished dissected =
      hosts
          .start("a", {"tshark", "-n", "-r", file.string(), "-Y", "udp.port == 4791 && !icmp", "-T", "fields", "-E",
                       "separator=|", "-e", "frame.number", "-e", "frame.protocols", "-e", "_ws.expert.message", "-e",
                       "infiniband.bth.opcode"})
          .wait();
  ASSERT_EQ(dissected.exit_code, 0) << dissected.output;
  std::istringstream rows(dissected.output);
  int packets = 0;
  for (std::string row; std::getline(rows, row);) {
    if (row.find('|') == std::string::npos) continue;  // warning about running as root
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
    ++packets;
  }
  EXPECT_GT(packets, 0);
}

void expect_icrc_of_scapy(const std::filesystem::path& file) {
  TwoHosts hosts;
  const netns::Finished checked = hosts.start("a", {"/usr/bin/python3", PLUGFEST_CHECK_ICRC, file.string()}).wait();
  if (checked.exit_code == kScapyIsMissing) GTEST_SKIP() << checked.output;
  EXPECT_EQ(checked.exit_code, 0) << checked.output;
}

struct Program {
  const char* name;
  std::vector<std::string> argv;
};

// Test name in ctest.
void PrintTo(const Program& value, std::ostream* out) { *out << value.name; }

class Packets : public testing::TestWithParam<Program> {};

TEST_P(Packets, AreDissectedByWiresharkWithoutErrors) {
  PLUGFEST_NEEDS_PROGRAM(GetParam().argv.front());
  PLUGFEST_NEEDS_PROGRAM("tshark");
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "packets.pcap";
  ASSERT_NO_FATAL_FAILURE(capture_traffic(GetParam().argv, file));
  expect_clean_dissection(file);
}

TEST_P(Packets, HaveTheIcrcThatScapyComputes) {
  PLUGFEST_NEEDS_PROGRAM(GetParam().argv.front());
  PLUGFEST_NEEDS_PROGRAM("/usr/bin/python3");
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "packets.pcap";
  ASSERT_NO_FATAL_FAILURE(capture_traffic(GetParam().argv, file));
  expect_icrc_of_scapy(file);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Packets,
    testing::Values(
        Program{"SendsThatFillPackets", {"ibv_rc_pingpong", "-g", "0", "-n", "20", "-m", "1024", "-s", "65536"}},
        Program{"SendsThatNeedPadding", {"ibv_rc_pingpong", "-g", "0", "-n", "20", "-m", "1024", "-s", "5001"}},
        Program{"Writes", {"ib_write_bw", "-d", "roce_eth0", "-F", "-n", "20", "-s", "65536"}},
        Program{"Reads", {"ib_read_bw", "-d", "roce_eth0", "-F", "-n", "20", "-s", "65536"}},
        Program{"UnreliableSends", {"ibv_uc_pingpong", "-g", "0", "-n", "20", "-m", "1024", "-s", "5001"}},
        Program{"UnreliableWrites", {"ib_write_bw", "-c", "UC", "-d", "roce_eth0", "-F", "-n", "20", "-s", "65536"}},
        Program{"Datagrams", {"ibv_ud_pingpong", "-g", "0", "-n", "20", "-s", "1001"}},
        Program{"SendsOverIpv6", {"ibv_rc_pingpong", "-g", "1", "-n", "20", "-m", "1024", "-s", "5001"}},
        Program{"DatagramsOverIpv6", {"ibv_ud_pingpong", "-g", "1", "-n", "20", "-s", "1001"}},
        Program{"Atomics", {"ib_atomic_bw", "-d", "roce_eth0", "-F", "-n", "20"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace plugfest::roce
