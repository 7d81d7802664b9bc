// Mode mesh: NICs that the mesh plugin uses, and pairs of hosts.
#include "harness/doctor/examine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/doctor/fake_machine.h"

namespace plugfest::doctor {
namespace {

using testing::HasSubstr;

// A host with NICs roce_eth0 and roce_eth1 on 10.0.0.0/24 and fd00:1::/64.
class TwoNics : public testing::Test {
 protected:
  TwoNics() {
    paper.file("/proc/sys/kernel/hostname", "a\n");
    nic("eth0", "0000:0000:0000:0000:0000:ffff:0a00:0001", "9000");
    nic("eth1", "fd00:0001:0000:0000:0000:0000:0000:0001", "1500");
    paper.file("/proc/net/route",
               "Iface\tDestination\tGateway\n"
               "eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
               "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n");
    paper.file("/proc/net/if_inet6",
               "fd000001000000000000000000000001 03 40 00 80 eth1\n"
               "fe800000000000000000000000000001 03 40 20 80 eth1\n");
  }

  void nic(const std::string& interface, const std::string& gid, const std::string& mtu) {
    const std::string port = "/sys/class/infiniband/roce_" + interface + "/ports/1";
    paper.file(port + "/state", "4: ACTIVE\n");
    paper.file(port + "/link_layer", "Ethernet\n");
    paper.file(port + "/gids/0", "fe80:0000:0000:0000:ba59:9fff:fe00:0001\n");
    paper.file(port + "/gids/1", gid + "\n");
    for (const char* index : {"0", "1"}) {
      paper.file(port + "/gid_attrs/types/" + index, "RoCE v2\n");
      paper.file(port + "/gid_attrs/ndevs/" + index, interface + "\n");
    }
    paper.file("/sys/class/net/" + interface + "/mtu", mtu + "\n");
  }

  FakeMachine paper;
};

TEST_F(TwoNics, AreOnTheirSubnets) {
  const std::vector<Finding> findings = examine_mesh(paper.machine());
  EXPECT_EQ(named(findings, "roce_eth0").text, "on 10.0.0.0/24, path MTU 4096");
  EXPECT_EQ(named(findings, "roce_eth1").text, "on fd00:1::/64, path MTU 1024");
  EXPECT_EQ(findings.size(), 2u);
}

TEST_F(TwoNics, AreNotUsedWithoutGidOrWithoutLink) {
  paper.file("/sys/class/infiniband/roce_eth0/ports/1/state", "1: DOWN\n");
  paper.remove("/sys/class/infiniband/roce_eth1/ports/1/gids/1");
  const std::vector<Finding> findings = examine_mesh(paper.machine());
  EXPECT_EQ(named(findings, "roce_eth0").text, "not used: its port is DOWN");
  EXPECT_EQ(named(findings, "roce_eth1").text,
            "not used: it has no RoCE v2 GID for an IP address, because eth1 has no address");
  EXPECT_EQ(named(findings, "NICs").state, State::kBad);
}

TEST_F(TwoNics, MayBeExcludedByVariablesOfThePlugin) {
  using namespace std::string_literals;
  paper.file("/proc/self/environ", "HOME=/\0NCCL_MESH_HCA=roce_eth1\0NCCL_MESH_GID_INDEX=\0"s);
  const std::vector<Finding> findings = examine_mesh(paper.machine());
  EXPECT_EQ(named(findings, "environment").text,
            "NCCL_MESH_HCA=roce_eth1 is set: the plugin uses fewer NICs or addresses than these");
  EXPECT_EQ(findings.size(), 3u);
}

TEST_F(TwoNics, AreNamedIfTheyShareASubnet) {
  paper.file("/proc/net/if_inet6", "");
  paper.file("/proc/net/route",
             "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
             "eth1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n");
  const std::vector<Finding> findings = examine_mesh(paper.machine());
  EXPECT_THAT(named(findings, "roce_eth0 and roce_eth1").text, HasSubstr("share 10.0.0.0/24"));
  EXPECT_EQ(named(findings, "MTU in 10.0.0.0/24").state, State::kWarning);
}

TEST_F(TwoNics, AreComparedWithPeers) {
  MeshHost near = mesh_host(paper.machine()), far = near, other = near;
  near.name = "b";
  near.nics = {{.name = "mlx5_0", .path_mtu = 4096, .subnets = {"10.0.0.0/24"}}};
  far.name = "c";
  far.nics = {{.name = "mlx5_0", .path_mtu = 4096, .subnets = {"10.9.0.0/24"}}};
  other.name = "d";
  other.nics = {{.name = "mlx5_1", .path_mtu = 4096, .subnets = {"fd00:1::/64"}}};
  const Diagnosis diagnosis = examine(paper.machine(), {kMeshMode}, {near, far, other});
  const std::vector<Finding>& findings = diagnosis.modes.front().findings;
  EXPECT_EQ(named(findings, "a and b").text, "on one subnet: 10.0.0.0/24 (roce_eth0 to mlx5_0, path MTU 4096)");
  EXPECT_EQ(named(findings, "a and b").state, State::kGood);
  EXPECT_EQ(named(findings, "a and c").text, "no common subnet: they connect only through a router");
  EXPECT_EQ(named(findings, "a and c").state, State::kWarning);
  EXPECT_EQ(named(findings, "a and d").text,
            "on one subnet: fd00:1::/64 (roce_eth1 with path MTU 1024, mlx5_1 with 4096); give the interfaces one MTU");
  EXPECT_EQ(named(findings, "a and d").state, State::kWarning);
  EXPECT_TRUE(has(findings, "b and c"));
}

TEST_F(TwoNics, AreReadBackFromJson) {
  const MeshHost host = mesh_host(paper.machine());
  const MeshHost back = read_mesh_host(to_json(examine(paper.machine(), {kMeshMode}), "0"), "a.json");
  EXPECT_EQ(back.name, "a");
  ASSERT_EQ(back.nics.size(), host.nics.size());
  EXPECT_EQ(back.nics[1].subnets, host.nics[1].subnets);
  EXPECT_EQ(back.nics[1].path_mtu, 1024);
  EXPECT_THAT(error_message([&] { read_mesh_host("{\"schema\": 1}", "wrong.json"); }),
              HasSubstr("wrong.json: not written by plugfest doctor --plugin mesh --json"));
}

}  // namespace
}  // namespace plugfest::doctor
