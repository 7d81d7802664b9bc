// What the NIC puts on the wire, judged by two programs that nobody of this project wrote: Wireshark's dissector and
// scapy.
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "fabric/roce/verbs/testing/capture.h"
#include "fabric/roce/verbs/testing/two_hosts.h"
#include "fabric/system/testing/scratch_folder.h"
#include "test_paths.h"

namespace plugfest::roce {
namespace {

constexpr std::uint16_t kExchangePort = 18515;
constexpr int kScapyIsMissing = 77;

// Runs one program on both hosts with batches cut into packets, and captures a's end of the link.
void capture_traffic(const std::vector<std::string>& argv, const std::filesystem::path& file) {
  TwoHosts hosts;
  hosts.fabric().set_udp_segmentation("a", "eth0", false);
  hosts.fabric().set_udp_segmentation("b", "eth0", false);
  Capture capture(hosts.fabric(), "a", "eth0");
  HostProcess server = hosts.start("a", argv);
  hosts.wait_until_listening(server, kExchangePort);
  std::vector<std::string> client_argv = argv;
  client_argv.push_back(hosts.address_of_a());
  HostProcess client = hosts.start("b", client_argv);
  const netns::Finished of_client = client.wait();
  ASSERT_EQ(of_client.exit_code, 0) << of_client.output;
  const netns::Finished of_server = server.wait();
  ASSERT_EQ(of_server.exit_code, 0) << of_server.output;
  ASSERT_GT(capture.stop(file), 0u);
}

// What Wireshark remarks on the IP header of every packet of ibv_rc_pingpong, which asks for a hop limit of 1.
constexpr const char* kProgramsOwnHopLimit = "\"Time To Live\" only 1";

// Every frame to UDP port 4791 must be InfiniBand to its end, and free of expert information.
void expect_clean_dissection(const std::filesystem::path& file) {
  TwoHosts hosts;  // tshark needs no host; it runs in one to have its output kept
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
    if (row.find('|') == std::string::npos) continue;  // a remark about running as root
    std::istringstream fields(row);
    std::string number, protocols, complaint, opcode;
    std::getline(fields, number, '|');
    std::getline(fields, protocols, '|');
    std::getline(fields, complaint, '|');
    std::getline(fields, opcode, '|');
    EXPECT_TRUE(protocols.starts_with("eth:ethertype:ip:udp:infiniband") ||
                protocols.starts_with("eth:ethertype:ipv6:udp:infiniband"))
        << row;
    EXPECT_EQ(protocols.find("malformed"), std::string::npos) << row;
    EXPECT_TRUE(complaint.empty() || complaint == kProgramsOwnHopLimit) << row;
    EXPECT_FALSE(opcode.empty()) << row;
    ++packets;
  }
  EXPECT_GT(packets, 0);
}

void expect_icrc_as_scapy_computes_it(const std::filesystem::path& file) {
  TwoHosts hosts;
  const netns::Finished checked = hosts.start("a", {"/usr/bin/python3", PLUGFEST_CHECK_ICRC, file.string()}).wait();
  if (checked.exit_code == kScapyIsMissing) GTEST_SKIP() << checked.output;
  EXPECT_EQ(checked.exit_code, 0) << checked.output;
}

struct Traffic {
  const char* name;
  std::vector<std::string> argv;
};

// For the test's name in ctest.
void PrintTo(const Traffic& value, std::ostream* out) { *out << value.name; }

class Packets : public testing::TestWithParam<Traffic> {};

TEST_P(Packets, WiresharkDissectsEachWithoutComplaint) {
  PLUGFEST_NEEDS_PROGRAM(GetParam().argv.front());
  PLUGFEST_NEEDS_PROGRAM("tshark");
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "packets.pcap";
  ASSERT_NO_FATAL_FAILURE(capture_traffic(GetParam().argv, file));
  expect_clean_dissection(file);
}

TEST_P(Packets, CarryTheIcrcThatScapyComputes) {
  PLUGFEST_NEEDS_PROGRAM(GetParam().argv.front());
  PLUGFEST_NEEDS_PROGRAM("/usr/bin/python3");
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "packets.pcap";
  ASSERT_NO_FATAL_FAILURE(capture_traffic(GetParam().argv, file));
  expect_icrc_as_scapy_computes_it(file);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Packets,
    testing::Values(
        Traffic{"SendsThatFillPackets", {"ibv_rc_pingpong", "-g", "0", "-n", "20", "-m", "1024", "-s", "65536"}},
        Traffic{"SendsThatNeedPadding", {"ibv_rc_pingpong", "-g", "0", "-n", "20", "-m", "1024", "-s", "5001"}},
        Traffic{"Writes", {"ib_write_bw", "-d", "roce_eth0", "-F", "-n", "20", "-s", "65536"}},
        Traffic{"Reads", {"ib_read_bw", "-d", "roce_eth0", "-F", "-n", "20", "-s", "65536"}},
        Traffic{"UnreliableSends", {"ibv_uc_pingpong", "-g", "0", "-n", "20", "-m", "1024", "-s", "5001"}},
        Traffic{"UnreliableWrites", {"ib_write_bw", "-c", "UC", "-d", "roce_eth0", "-F", "-n", "20", "-s", "65536"}},
        Traffic{"Datagrams", {"ibv_ud_pingpong", "-g", "0", "-n", "20", "-s", "1001"}},
        Traffic{"SendsOverIpv6", {"ibv_rc_pingpong", "-g", "1", "-n", "20", "-m", "1024", "-s", "5001"}},
        Traffic{"DatagramsOverIpv6", {"ibv_ud_pingpong", "-g", "1", "-n", "20", "-s", "1001"}},
        Traffic{"Atomics", {"ib_atomic_bw", "-d", "roce_eth0", "-F", "-n", "20"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace plugfest::roce
