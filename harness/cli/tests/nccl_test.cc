// plugfest nccl. The tests with NCCL itself are skipped where there is no libnccl.so.2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "fabric/system/testing/scratch_folder.h"
#include "harness/cli/tests/program.h"
#include "harness/plugin/nccl/nccl_builtin.h"

namespace plugfest::cli {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(NcclOptions, WrongOnesAreRefused) {
  EXPECT_EQ(error_of("nccl allreduse"),
            "plugfest: operation \"allreduse\": expected one of all, allreduce, allgather, reducescatter, broadcast, "
            "reduce, alltoall, sendrecv\n");
  EXPECT_THAT(error_of("nccl allreduce -d flaot"), HasSubstr("-d \"flaot\": expected one of all, int8, "));
  EXPECT_EQ(error_of("nccl allreduce -b 8X"), "plugfest: -b \"8X\": expected a size such as 8, 64K or 1M\n");
  EXPECT_EQ(error_of("nccl allreduce -b 1M -e 8"), "plugfest: -e 8: less than -b 1M\n");
  EXPECT_EQ(error_of("nccl allreduce -r 3"), "plugfest: -r 3: there are 3 ranks\n");
  EXPECT_EQ(error_of("nccl allreduce --ranks 1"), "plugfest: --ranks 1: NCCL uses no network with one rank\n");
}

TEST(RunWithNccl, IsRefusedWhereNcclCannotRun) {
  EXPECT_EQ(error_of("run --with-nccl --nic loopback"),
            "plugfest: --with-nccl: NCCL needs the fabric with the NIC in user space: leave out --nic loopback\n");
}

TEST(RunWithNccl, AddsTheRulesAndSoDoesTheirName) {
  EXPECT_THAT(plugfest("run --list").output, Not(HasSubstr("EE-")));
  EXPECT_THAT(plugfest("run --list --with-nccl").output, AllOf(HasSubstr("EE-01\n"), HasSubstr("XF-01\n")));
  EXPECT_THAT(plugfest("run --list --rule 'EE-*'").output, AllOf(HasSubstr("EE-01\n"), Not(HasSubstr("XF-01\n"))));
}

class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2: run\n    " << plugin::kFetchNccl;
  }
};

TEST_F(NcclTest, AllOperationsAreRightThroughTheBundledPlugin) {
  const ShellResult result = plugfest("nccl all -b 24 -e 64K -f 2700 -n 1");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("net plugin Mesh (v11), network Mesh, "), HasSubstr("0 -> 1 NET/Mesh/"),
                                   HasSubstr("# 14 measurements, every element right\n")));
}

TEST_F(NcclTest, ReportsAPluginThatCorruptsData) {
  const ShellResult result =
      plugfest("nccl sendrecv -b 4M -e 4M -n 1 --plugin " PLUGFEST_MUTANTS "/libnccl-net-last_byte_corrupted.so");
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, AllOf(ContainsRegex("[0-9]+ elements? wrong; again:  .* nccl sendrecv --plugin "),
                                   HasSubstr("log of rank 2 on c:")));
}

TEST_F(NcclTest, RefusesAnAlgorithmThatIsNotEmulated) {
  const ShellResult result =
      run_shell("NCCL_PAT_ENABLE=1 NCCL_ALGO=PAT exec " PLUGFEST_PROGRAM " nccl allgather -b 64K -e 64K");
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("plugfest: nccl: AllGather PAT Simple: no stand-in for this kernel\n"));
}

TEST_F(NcclTest, WritesTheLogOfEachRank) {
  const ScratchFolder folder;
  const ShellResult result = plugfest("nccl sendrecv -b 8 -e 8 --logs " + folder.path().string());
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(content_of(folder / "rank-2.log"), HasSubstr("Loaded net plugin Mesh (v11)"));
}

TEST_F(NcclTest, NcclsOwnTransportsWork) {
  const ShellResult ib = plugfest("nccl allreduce --plugin nccl:IB --topology star:2 -b 64K -e 64K -n 1");
  EXPECT_EQ(ib.exit_code, 0) << ib.output;
  EXPECT_THAT(ib.output, AllOf(HasSubstr("network IB"), Not(HasSubstr("net plugin"))));
  const ShellResult socket = plugfest("nccl allreduce --plugin nccl:Socket -b 64K -e 64K -n 1");
  EXPECT_EQ(socket.exit_code, 0) << socket.output;
  EXPECT_THAT(socket.output, HasSubstr("network Socket"));
}

TEST_F(NcclTest, IbNeedsNicsThatReachEachOther) {
  EXPECT_EQ(
      error_of("nccl allreduce --plugin nccl:IB"),
      "plugfest: nccl:IB: it connects a.eth1 to b.eth1, which do not reach each other in triangle: add --topology "
      "star:3, or another one with switches\n");
}

TEST_F(NcclTest, SeveralRanksOfAHostUseItsMemory) {
  const ShellResult result = plugfest("nccl allreduce --topology pair --ranks 4 -b 64K -e 64K -n 1");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("# 4 ranks on 2 hosts of pair"), HasSubstr("SHM/direct/direct")));
}

TEST_F(NcclTest, APluginThatLeavesDeviceMemoryToTheNicIsRight) {
  // Small messages of the mesh plugin are posted inline, which the CPU copies.
  const ShellResult result = plugfest("nccl all -b 2M -e 2M -n 1 --device-memory split --plugin " +
                                      std::string(PLUGFEST_NCCL_GPU_PLUGIN));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("net plugin MeshOnGpu (v11), "), HasSubstr("0 -> 1 NET/MeshOnGpu/0/GDRDMA"),
                    HasSubstr("# 7 measurements, every element right\n")));
}

TEST_F(NcclTest, APluginThatCopiesDeviceMemoryWithTheCpuIsNamed) {
  const std::string command = "nccl sendrecv -b 2M -e 2M -n 1 --plugin " PLUGFEST_NCCL_CPU_COPY_PLUGIN;
  EXPECT_EQ(plugfest(command).exit_code, 0) << "without split memory nothing tells";
  const ShellResult result = plugfest(command + " --device-memory split");
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output,
              ContainsRegex("plugfest: rank [0-2] on [abc]: the CPU accessed device memory in "
                            ".*copy_to_bounce_buffer.* of .*libnccl_cpu_copy_plugin.so: address 0x[0-9a-f]+, byte "));
}

}  // namespace
}  // namespace plugfest::cli
