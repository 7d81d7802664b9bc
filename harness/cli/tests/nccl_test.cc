// plugfest nccl. The tests with NCCL itself are skipped where there is no libnccl.so.2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <compare>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

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

/// What a rank did on one comm: the sizes of its registrations and of its messages, in order.
struct SendComm {
  std::vector<std::size_t> registrations = {}, messages = {};
  auto operator<=>(const SendComm&) const = default;
};

/// The calls of the ranks, by the tag of their messages, which is the rank's number.
struct Calls {
  std::map<int, std::multiset<SendComm>> sends;
  std::map<int, std::set<std::size_t>> receives;  ///< sizes of the buffers
};

/// Runs `command` with the variant that records calls, and reads the records.
Calls calls_of(const std::string& command) {
  const ScratchFolder folder;
  const ShellResult result =
      run_shell("PLUGFEST_RECORD_CALLS=" + folder.path().string() +
                " NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_MAX_NCHANNELS=2 exec " PLUGFEST_PROGRAM " " + command +
                " --plugin " PLUGFEST_MUTANTS "/libnccl-net-records_calls.so");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  Calls calls;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    std::map<std::string, SendComm> comms;
    std::set<std::size_t> receives;
    int rank = -1;
    std::ifstream lines(file.path());
    std::string call, comm;
    std::size_t size = 0;
    for (int tag = 0; lines >> call >> comm >> size >> tag;) {
      if (call == "regMr") comms[comm].registrations.push_back(size);
      if (call == "irecv") receives.insert(size);
      if (call != "isend") continue;
      rank = tag;
      if (size > 1) comms[comm].messages.push_back(size);  // the others are those of NCCL's barrier
    }
    for (auto& [name, one] : comms)
      if (!one.messages.empty()) calls.sends[rank].insert(std::move(one));
    if (rank >= 0) calls.receives[rank] = std::move(receives);
  }
  return calls;
}

TEST_F(NcclTest, TheReplayMakesTheCallsOfNccl) {
  struct Case {
    const char *nccl, *coll;
  };
  // All run an operation three times: nccl runs one that works in place twice more.
  // NCCL gives each channel whole cells of 5472 bytes of an allgather on three ranks; coll divides evenly.
  for (const Case& one :
       {Case{"nccl allreduce -b 3M -e 3M -n 1 -w 0", "coll allreduce -b 3M -e 3M -n 1"},
        Case{"nccl allgather -b 3151872 -e 3151872 -n 1 -w 0", "coll allgather -b 3151872 -e 3151872 -n 1"},
        Case{"nccl alltoall -b 3M -e 3M -n 3 -w 0", "coll alltoall -b 3M -e 3M -n 1"}}) {
    SCOPED_TRACE(one.nccl);
    const Calls nccl = calls_of(one.nccl), coll = calls_of(std::string(one.coll) + " --api v10");
    EXPECT_EQ(nccl.sends.size(), 3u);
    EXPECT_EQ(nccl.sends, coll.sends);
    for (const auto& [rank, sizes] : coll.receives)
      for (const std::size_t size : sizes) EXPECT_THAT(nccl.receives.at(rank), testing::Contains(size));
  }
}

TEST_F(NcclTest, APluginThatLeavesDeviceMemoryToTheNicIsRight) {
  // Small messages of the mesh plugin are posted inline, which the CPU copies.
  const ShellResult result =
      plugfest("nccl all -b 2M -e 2M -n 1 --device-memory split --plugin " + std::string(PLUGFEST_NCCL_GPU_PLUGIN));
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
