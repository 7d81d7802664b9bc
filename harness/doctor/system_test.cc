// Mode system, with RDMA devices in a fake sysfs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/dcbnl.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>

#include <memory>

#include "harness/doctor/examine.h"
#include "harness/doctor/fake_machine.h"
#include "harness/doctor/verbs_device.h"

namespace plugfest::doctor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Two ConnectX adapters with one port each.
class TwoAdapters : public testing::Test {
 protected:
  TwoAdapters() {
    adapter(0, "eth2", "0a00", "9000");
    adapter(1, "eth3", "0a00", "9000");
    paper.file("/etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
    paper.limits("unlimited", "unlimited", "1024", "1024");
    paper.file("/proc/net/route",
               "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
               "eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
               "eth2\t0000000A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
               "eth3\t0000000A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n");
  }

  void adapter(int number, const std::string& interface, const std::string& subnet, const std::string& mtu) {
    const std::string device = fmt::format("/sys/class/infiniband/mlx5_{}", number);
    const std::string port = device + "/ports/1";
    paper.file(device + "/fw_ver", "20.31.1014\n");
    paper.file(device + "/hca_type", "MT4123\n");
    paper.link(device + "/device/driver", "../../../bus/pci/drivers/mlx5_core");
    paper.file(port + "/state", "4: ACTIVE\n");
    paper.file(port + "/phys_state", "5: LinkUp\n");
    paper.file(port + "/link_layer", "Ethernet\n");
    paper.file(port + "/rate", "100 Gb/sec (4X EDR)\n");
    const std::string link_local = "fe80:0000:0000:0000:ba59:9fff:fe00:0001";
    const std::string mapped = fmt::format("0000:0000:0000:0000:0000:ffff:{}:000{}", subnet, number + 1);
    const std::pair<std::string, std::string> gids[] = {
        {link_local, "IB/RoCE v1"}, {link_local, "RoCE v2"}, {mapped, "IB/RoCE v1"}, {mapped, "RoCE v2"}};
    for (int i = 0; i < 4; ++i) {
      paper.file(fmt::format("{}/gids/{}", port, i), gids[i].first + "\n");
      paper.file(fmt::format("{}/gid_attrs/types/{}", port, i), gids[i].second + "\n");
      paper.file(fmt::format("{}/gid_attrs/ndevs/{}", port, i), interface + "\n");
    }
    paper.file(port + "/gids/4", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    paper.file("/sys/class/net/" + interface + "/mtu", mtu + "\n");
    paper.file(fmt::format("/sys/class/infiniband_verbs/uverbs{}/ibdev", number), fmt::format("mlx5_{}\n", number));
    paper.file(fmt::format("/dev/infiniband/uverbs{}", number), "");
  }

  std::vector<Finding> findings() const { return examine_system(paper.machine()); }

  FakeMachine paper;
};

TEST_F(TwoAdapters, HaveNoProblem) {
  for (const Finding& finding : findings())
    EXPECT_EQ(finding.state, State::kGood) << finding.name << ": " << finding.text;
  EXPECT_EQ(named(findings(), "mlx5_0").text, "mlx5_core, MT4123, firmware 20.31.1014");
  EXPECT_EQ(named(findings(), "mlx5_1 port 1").text,
            "ACTIVE, Ethernet, 100 Gb/sec (4X EDR), eth3 with MTU 9000: path MTU 4096");
}

TEST_F(TwoAdapters, HaveOneIndexForRoceV2OverIpv4) {
  EXPECT_THAT(named(findings(), "mlx5_1 port 1 GIDs").text,
              AllOf(HasSubstr("index 3 (10.0.0.2, eth3)"), HasSubstr("NCCL_IB_GID_INDEX=3")));
  paper.file("/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/3", "IB/RoCE v1\n");
  const Finding finding = named(findings(), "mlx5_1 port 1 GIDs");
  EXPECT_EQ(finding.state, State::kWarning);
  EXPECT_EQ(finding.fix, "sudo ip address add ADDRESS/24 dev eth3");
}

TEST_F(TwoAdapters, NeedEqualMtusInOneSubnet) {
  EXPECT_FALSE(has(findings(), "MTU in 10.0.0.0/16"));
  paper.file("/sys/class/net/eth3/mtu", "1500\n");
  const Finding finding = named(findings(), "MTU in 10.0.0.0/16");
  EXPECT_EQ(finding.state, State::kWarning);
  EXPECT_THAT(finding.text, AllOf(HasSubstr("mlx5_0 (eth2) 9000"), HasSubstr("mlx5_1 (eth3) 1500")));
  EXPECT_EQ(finding.fix, "sudo ip link set eth3 mtu 9000");
  EXPECT_THAT(named(findings(), "mlx5_1 port 1").text, HasSubstr("path MTU 1024"));
}

TEST_F(TwoAdapters, NeedAnActivePort) {
  paper.file("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  paper.file("/sys/class/infiniband/mlx5_0/ports/1/phys_state", "3: Disabled\n");
  EXPECT_EQ(named(findings(), "mlx5_0 port 1").fix, "sudo ip link set eth2 up");
  EXPECT_FALSE(has(findings(), "ports")) << "mlx5_1 is active";
  paper.file("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
  paper.file("/sys/class/infiniband/mlx5_1/ports/1/phys_state", "2: Polling\n");
  EXPECT_THAT(named(findings(), "mlx5_1 port 1").text, HasSubstr("cable"));
  EXPECT_EQ(named(findings(), "ports").state, State::kBad);
}

TEST_F(TwoAdapters, NeedAUserSpaceDriverAndANode) {
  paper.remove("/etc/libibverbs.d");
  EXPECT_EQ(named(findings(), "verbs providers").fix, "sudo apt-get install ibverbs-providers");
  paper.remove("/dev/infiniband/uverbs1");
  EXPECT_EQ(named(findings(), "mlx5_1").fix, "sudo modprobe ib_uverbs");
}

TEST_F(TwoAdapters, NeedLockedMemory) {
  paper.limits("65536", "unlimited", "1024", "1024");
  EXPECT_EQ(named(findings(), "locked memory").fix, "ulimit -l unlimited");
  paper.limits("65536", "65536", "1024", "1024");
  EXPECT_THAT(named(findings(), "locked memory").fix, HasSubstr("limits.d"));
  paper.root_user();
  EXPECT_EQ(named(findings(), "locked memory").state, State::kGood);
}

TEST_F(TwoAdapters, ShowFlowControlSettings) {
  EXPECT_FALSE(has(findings(), "mlx5_0 port 1 flow control"));
  paper.file("/sys/class/net/eth2/qos/trust", "dscp\n");
  paper.trials.paused_priorities = [](const std::string& interface) -> std::optional<unsigned> {
    if (interface != "eth2") return std::nullopt;
    return 1u << 3;
  };
  paper.file("/sys/class/net/eth2/ecn/roce_np/enable/3", "1\n");
  paper.file("/sys/class/net/eth2/ecn/roce_np/enable/4", "0\n");
  paper.file("/sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106\n");
  EXPECT_EQ(named(findings(), "mlx5_0 port 1 flow control").text,
            "PFC on priority 3; ECN on priority 3; trust dscp; traffic class: Global tclass=106");
  EXPECT_FALSE(has(findings(), "mlx5_1 port 1 flow control"));
}

TEST_F(TwoAdapters, WarnWithoutFlowControl) {
  paper.trials.paused_priorities = [](const std::string&) { return std::optional(0u); };
  EXPECT_EQ(named(findings(), "mlx5_0 port 1 flow control").state, State::kWarning);
  EXPECT_THAT(named(findings(), "mlx5_0 port 1 flow control").fix, HasSubstr("dcb pfc set dev eth2"));
  paper.file("/sys/class/net/eth2/ecn/roce_np/enable/3", "1\n");
  EXPECT_EQ(named(findings(), "mlx5_0 port 1 flow control").state, State::kGood);
}

TEST(DoctorPriorityFlow, ParsesTheKernelsAnswer) {
  const std::unique_ptr<nl_msg, void (*)(nl_msg*)> message(nlmsg_alloc(), nlmsg_free);
  nlmsg_put(message.get(), 0, 0, RTM_GETDCB, 0, 0);
  nla_put_string(message.get(), DCB_ATTR_IFNAME, "eth2");
  nlattr* const ieee = nla_nest_start(message.get(), DCB_ATTR_IEEE);
  ieee_pfc pfc{};
  pfc.pfc_en = 1 << 3;
  nla_put(message.get(), DCB_ATTR_IEEE_PFC, sizeof(pfc), &pfc);
  nla_nest_end(message.get(), ieee);
  const nlmsghdr* header = nlmsg_hdr(message.get());
  const std::span<const std::byte> answer(reinterpret_cast<const std::byte*>(nlmsg_attrdata(header, 0)),
                                          static_cast<std::size_t>(nlmsg_attrlen(header, 0)));
  EXPECT_EQ(paused_priorities(answer), 1 << 3);
  for (std::size_t length = 0; length < answer.size(); ++length)
    EXPECT_EQ(paused_priorities(answer.first(length)), std::nullopt) << length;
  EXPECT_EQ(paused_priorities("lo"), std::nullopt) << "lo has no DCB";
}

TEST_F(TwoAdapters, WarnAboutLostPackets) {
  paper.file("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "0\n");
  EXPECT_FALSE(has(findings(), "mlx5_0 port 1 losses"));
  paper.file("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "12\n");
  EXPECT_THAT(named(findings(), "mlx5_0 port 1 losses").text, HasSubstr("out_of_sequence 12"));
}

TEST(DoctorSystem, ReportsAMachineWithoutDevices) {
  FakeMachine laptop;
  const auto findings = examine_system(laptop.machine());
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings.front().state, State::kBad);
}

TEST(DoctorSystem, RecognizesTheNicOfAnEmulatedHost) {
  FakeMachine host;
  host.file("/sys/class/infiniband/roce_eth0/hca_type", "plugfest-roce\n");
  EXPECT_EQ(named(examine_system(host.machine()), "roce_eth0").state, State::kGood) << "it needs no node";
}

TEST(DoctorSystem, ReadsInfiniBand) {
  FakeMachine paper;
  const std::string port = "/sys/class/infiniband/mlx5_0/ports/1";
  paper.file(port + "/state", "2: INIT\n");
  paper.file(port + "/link_layer", "InfiniBand\n");
  paper.file(port + "/rate", "200 Gb/sec (4X HDR)\n");
  const auto findings = examine_system(paper.machine());
  EXPECT_THAT(named(findings, "mlx5_0 port 1").fix, HasSubstr("opensm"));
  EXPECT_FALSE(has(findings, "mlx5_0 port 1 GIDs")) << "InfiniBand needs no index";
}

TEST(DoctorSystem, ComputesThePathMtuOfAnInterface) {
  EXPECT_EQ(roce_path_mtu(1500), 1024);
  EXPECT_EQ(roce_path_mtu(2143), 1024);
  EXPECT_EQ(roce_path_mtu(2144), 2048);
  EXPECT_EQ(roce_path_mtu(4191), 2048);
  EXPECT_EQ(roce_path_mtu(4192), 4096);
  EXPECT_EQ(roce_path_mtu(0), 256);
}

}  // namespace
}  // namespace plugfest::doctor
