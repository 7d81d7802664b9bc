// --nic vm, and --nic system in a virtual machine.

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(KernelNic, PassesTheSmokeRulesInAGuest) {
  const ScratchFolder folder;
  const std::string result = output_of(plugfest("run --nic vm --rule @smoke --json " + (folder / "r.json").string() +
                                                " --junit " + (folder / "r.xml").string()));
  EXPECT_THAT(result, HasSubstr("plugfest: starting a virtual machine, "));
  EXPECT_THAT(unwrapped(result), HasSubstr("NIC vm (all hosts in one namespace), Linux 6."));
  const auto json = nlohmann::json::parse(content_of(folder / "r.json"));
  EXPECT_EQ(json["environment"]["nic"], "vm");
  EXPECT_EQ(json["environment"]["topology"], "triangle");
  EXPECT_EQ(json["environment"]["layout"], "all hosts in one namespace");
  EXPECT_THAT(json["environment"]["kernel"], StartsWith("Linux "));
  EXPECT_EQ(json["summary"]["pass"], 21);
  EXPECT_THAT(content_of(folder / "r.xml"), HasSubstr("<property name=\"nic\" value=\"vm\"/>"));
}

// An rxe device in a guest stands for hardware.
TEST(KernelNic, TestsThePluginOnDevicesOfTheMachine) {
  const std::string script =
      "ip link add v0 type veth peer name v1 && ip address add 10.0.0.1/24 dev v0 && ip link set v0 up && "
      "ip link set v1 up && rdma link add rxe0 type rxe netdev v0 && exec " PLUGFEST_PROGRAM
      " run --nic system --rule DP-04 --rule XF-01 --timeout-scale 6";
  const std::string result =
      output_of(run_shell("exec " PLUGFEST_GUEST_RUN
                          " --module rdma_rxe --module crc32_generic --module ib_uverbs --module veth /bin/sh -c '" +
                          script + "'"));
  EXPECT_THAT(unwrapped(result), HasSubstr("NIC system (ranks on this machine)"));
  EXPECT_THAT(result, HasSubstr("2 pass"));
}

}  // namespace
}  // namespace plugfest::cli
