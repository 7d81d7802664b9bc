// The capture of the NIC, checked with Wireshark and scapy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "fabric/roce/capture/log_target.h"
#include "fabric/roce/counters/names.h"
#include "fabric/roce/faults/file.h"
#include "fabric/roce/verbs/testing/two_hosts.h"
#include "fabric/system/testing.h"
#include "test_paths.h"

namespace plugfest::roce {
namespace {

constexpr const char* kDevice = "/sys/class/infiniband/roce_eth0";

class NicLog : public testing::Test {
 protected:
  NicLog() {
    hosts_.fabric().call("a", [&] { set_device_log(kDevice, file_); });
  }

  // Runs several pairs of ib_write_bw in parallel, with messages of 65,000 bytes from b to a.
  void write_bandwidth(int pairs) {
    std::vector<std::unique_ptr<HostProcess>> servers, clients;
    for (int i = 0; i < pairs; ++i) {
      const auto port = static_cast<std::uint16_t>(kExchangePort + i);
      std::vector<std::string> argv = {"ib_write_bw", "-d", "roce_eth0", "-F", "-n",
                                       "20",          "-s", "65000",     "-p", std::to_string(port)};
      servers.emplace_back(new HostProcess(hosts_.start("a", argv)));
      servers.back()->wait_until_listening(port);
      argv.push_back(hosts_.address_of_a());
      clients.emplace_back(new HostProcess(hosts_.start("b", argv)));
    }
    for (auto* programs : {&clients, &servers})
      for (const auto& program : *programs) {
        const netns::Finished finished = program->wait();
        EXPECT_EQ(finished.exit_code, 0) << finished.output;
      }
  }

  Counters counters_of_a() {
    std::vector<DeviceCounters> devices;
    hosts_.fabric().call("a", [&] { devices = read_counters(); });
    return devices.at(0).counters;
  }

  // Returns one row per packet: protocols|opcode|direction|expert information|comment.
  std::vector<std::string> dissect() {
    const netns::Finished dissected =
        hosts_
            .start("a", {"tshark", "-n", "-r", file_, "-T", "fields", "-E", "separator=|", "-e", "frame.protocols",
                         "-e", "infiniband.bth.opcode", "-e", "frame.packet_flags_direction", "-e",
                         "_ws.expert.message", "-e", "frame.comment"})
            .wait();
    EXPECT_EQ(dissected.exit_code, 0) << dissected.output;
    std::istringstream stream(dissected.output);
    std::vector<std::string> rows;
    for (std::string row; std::getline(stream, row);)
      if (row.find('|') != std::string::npos) rows.push_back(row);  // skips a warning about running as root
    return rows;
  }

  TwoHosts hosts_;
  ScratchFolder folder_;
  const std::filesystem::path file_ = folder_ / "a.pcapng";
};

TEST_F(NicLog, HasAllPacketsOfAllProcesses) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  PLUGFEST_NEEDS_PROGRAM("tshark");
  write_bandwidth(2);
  const std::vector<std::string> rows = dissect();
  const Counters counted = counters_of_a();
  EXPECT_EQ(rows.size(), counted.sent_packets + counted.received_packets);
  for (const std::string& row : rows)
    ASSERT_THAT(row, testing::MatchesRegex("raw:ip:udp:infiniband[^|]*\\|[0-9]+\\|0x0000000[12]\\|\\|")) << row;
}

TEST_F(NicLog, HasTheIcrcThatScapyComputes) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  PLUGFEST_NEEDS_PROGRAM("/usr/bin/python3");
  write_bandwidth(1);
  const netns::Finished checked = hosts_.start("a", {"/usr/bin/python3", PLUGFEST_CHECK_ICRC, file_}).wait();
  constexpr int kScapyIsMissing = 77;
  if (checked.exit_code == kScapyIsMissing) GTEST_SKIP() << checked.output;
  EXPECT_EQ(checked.exit_code, 0) << checked.output;
}

TEST_F(NicLog, CommentsChangesOfFaults) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  PLUGFEST_NEEDS_PROGRAM("tshark");
  const FaultPlan plan = parse_faults("direction=in,loss=5%,seed=3");
  hosts_.fabric().call("a", [&] { set_device_faults(kDevice, {&plan, 1}); });
  write_bandwidth(1);
  const std::vector<std::string> rows = dissect();
  const Counters counted = counters_of_a();
  EXPECT_GT(counted.fault_drops, 0u);
  EXPECT_EQ(rows.size(), counted.sent_packets + counted.received_packets);
  ASSERT_FALSE(rows.empty());
  EXPECT_THAT(rows.front(), testing::EndsWith("|faults from here: direction=in,loss=0.05,seed=3"));
}

TEST_F(NicLog, IsNotWrittenWhenDisabled) {
  PLUGFEST_NEEDS_PROGRAM("ib_write_bw");
  hosts_.fabric().call("a", [&] { set_device_log(kDevice, {}); });
  write_bandwidth(1);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
}  // namespace plugfest::roce
