// plugfest nccl. The tests with NCCL itself are skipped where there is no libnccl.so.2.

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "harness/cli/tests/program.h"
#include "harness/plugin/nccl.h"
#include "harness/report/text.h"

namespace plugfest::cli {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(NcclOptions, AreRefusedIfInvalid) {
  EXPECT_EQ(error_of("nccl allreduse"),
            "plugfest: operation \"allreduse\": expected one of all, allreduce, allgather, reducescatter, broadcast, "
            "reduce, alltoall, sendrecv\n");
  EXPECT_THAT(error_of("nccl allreduce -d flaot"), HasSubstr("-d \"flaot\": expected one of all, int8, "));
  EXPECT_EQ(error_of("nccl allreduce -b 8X"), "plugfest: --begin \"8X\": expected a size such as 8, 64K or 128M\n");
  EXPECT_EQ(error_of("nccl allreduce -b 1M -e 8"), "plugfest: --begin 1M: is above --end 8\n");
  EXPECT_EQ(error_of("nccl allreduce -r 3"), "plugfest: -r 3: expected 0 to 2, the last rank\n");
  EXPECT_EQ(error_of("nccl allreduce -r -1"), "plugfest: -r -1: expected 0 to 2, the last rank\n");
  EXPECT_EQ(error_of("nccl allreduce -w -5"), "plugfest: -w -5: expected 0 to 1000000\n");
  EXPECT_EQ(error_of("nccl allreduce --ranks 1"), "plugfest: --ranks 1: NCCL uses no network with one rank\n");
}

TEST(NcclOptions, AnAlgorithmThatTheJobCannotHaveIsRefused) {
  EXPECT_THAT(error_of("nccl allreduce --algo nvls"), HasSubstr("--algo \"nvls\": expected ring, tree or collnet"));
  EXPECT_EQ(error_of("nccl broadcast --algo tree"),
            "plugfest: --algo tree: NCCL supports it only for allreduce: choose allreduce or all\n");
  EXPECT_EQ(error_of("nccl allreduce --algo collnet -t triangle"),
            "plugfest: --algo collnet: triangle has no switches that can reduce: choose a topology with switches of "
            "one kind, such as star:4 or fat-tree:4, whose subnets have free addresses\n");
  EXPECT_THAT(error_of("nccl allreduce --algo collnet --plugin mesh"),
              HasSubstr(": no collnet plugin symbol (ncclCollNetPlugin_v6 to _v12): "));
}

TEST(RunWithNccl, IsRefusedWhereNcclCannotRun) {
  EXPECT_EQ(error_of("run --with-nccl --nic loopback"),
            "plugfest: --with-nccl: NCCL needs the fabric with the user-space NIC: leave out --nic loopback\n");
}

TEST(RunWithNccl, AddsItsRulesByTheOptionOrByTheirName) {
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
  const ScratchFolder folder;
  EXPECT_THAT(output_of(plugfest("nccl all -b 24 -e 64K -f 2700 -n 1 --logs " + (folder / "new/folder").string())),
              AllOf(HasSubstr("net plugin Mesh (v11), network Mesh, "), HasSubstr("0 -> 1 NET/Mesh/"),
                    HasSubstr("# 14 measurements, every element right\n")));
  EXPECT_THAT(content_of(folder / "new/folder/rank-2.log"), HasSubstr("Loaded net plugin Mesh (v11)"));
}

TEST_F(NcclTest, ReportsAPluginThatCorruptsData) {
  EXPECT_THAT(output_of(plugfest("nccl sendrecv -b 4M -e 4M -n 1 --plugin " PLUGFEST_MUTANTS
                                 "/libnccl-net-last_byte_corrupted.so"),
                        1),
              AllOf(ContainsRegex("# rank [0-2]: in the output, element [0-9]+ is [^\n]+, not [^\n]+\n"),
                    ContainsRegex("[0-9]+ elements? wrong; again:  .* nccl sendrecv --begin 4M --end 4M "
                                  "--operations 1 --plugin .* --seed [0-9]+\n"),
                    ContainsRegex("log of rank 2 on [a-z0-9]+:")));
}

TEST_F(NcclTest, RefusesAnAlgorithmThatIsNotEmulated) {
  EXPECT_THAT(output_of(run_shell("NCCL_PAT_ENABLE=1 NCCL_ALGO=PAT exec " PLUGFEST_PROGRAM
                                  " nccl allgather --topology pair -b 64K -e 64K"),
                        2),
              HasSubstr("plugfest: nccl: AllGather PAT Simple: no stand-in for this kernel\n"));
}

TEST_F(NcclTest, TakesTheAlgorithmThatTheUserChooses) {
  EXPECT_THAT(output_of(plugfest("nccl all --algo tree --topology star:3 -b 24 -e 24 -n 1")),
              AllOf(HasSubstr("# algorithms: AllReduce TREE LL x"), HasSubstr("AllGather RING LL x"),
                    HasSubstr("every element right\n")));
}

// The switches of star:3 reduce.
TEST_F(NcclTest, TakesCollNetForWhatThePluginReduces) {
  EXPECT_THAT(
      output_of(plugfest("nccl allreduce --algo collnet -b 8 -e 1M -f 64 -n 2")),
      AllOf(HasSubstr(" of star:3, no GPU"), HasSubstr("0 -> switches COLLNET/"),
            ContainsRegex("# algorithms: AllReduce COLLNET_CHAIN SIMPLE x[0-9]+\n# 3 measurements, every element "
                          "right\n$")));
  EXPECT_THAT(
      output_of(plugfest("nccl allreduce --algo collnet -t star:2 --ranks 4 -d all -o avg -b 1000 -e 1000 -n 1")),
      AllOf(HasSubstr("SHM/direct/direct"), HasSubstr("# f8e4m3, avg: not run: NCCL has no CollNet for it\n"),
            HasSubstr("# f8e5m2, avg: not run: "), HasSubstr("every element right\n")));
}

TEST_F(NcclTest, ReportsThatNcclUsesAnotherNetwork) {
  EXPECT_THAT(output_of(plugfest("nccl allreduce -b 8 -e 8 -t star:2" + mutant("undefined_symbol")), 1),
              ContainsRegex("plugfest: NCCL uses the network [A-Za-z]+ instead of the plugin: rank 0: "
                            ".*/libnccl-net-undefined_symbol.so: undefined symbol: "));
}

TEST_F(NcclTest, ReportsThatNcclContinuesWithoutCollNet) {
  EXPECT_THAT(
      output_of(
          run_shell("NCCL_COLLNET_NODE_THRESHOLD=9 exec " PLUGFEST_PROGRAM " nccl allreduce --algo collnet -b 8 -e 8"),
          1),
      HasSubstr(
          "plugfest: --algo collnet: NCCL continues without CollNet: rank 0: Communicator has 3 nodes which is less "
          "than CollNet node threshold 9; --logs FOLDER keeps NCCL's logs\n"));
  EXPECT_THAT(output_of(run_shell("SHARP_COLL_JOB_QUOTA_OSTS=65 exec " PLUGFEST_PROGRAM
                                  " nccl allreduce --algo collnet -b 8 -e 8"),
                        1),
              HasSubstr("the quota of the aggregation tree is used up (-7)"));
  EXPECT_THAT(output_of(plugfest("nccl allreduce --algo collnet -d f8e4m3 -b 8 -e 8"), 1),
              HasSubstr("plugfest: --algo collnet: NCCL uses CollNet for none of these measurements: choose a type "
                        "(-d) and an operator (-o) that "
                        "the plugin reduces, and at most 8 ranks for each host\n"));
}

TEST_F(NcclTest, MergesNicsThroughTheBundledPlugin) {
  const ScratchFolder folder;
  EXPECT_THAT(output_of(run_shell("NCCL_NET_MERGE_LEVEL=SYS exec " PLUGFEST_PROGRAM
                                  " nccl allreduce --topology pair:links=2 -b 1M -e 1M -n 1 --logs " +
                                  folder.path().string())),
              AllOf(HasSubstr(" 0 -> 1 NET/Mesh/2 x2\n"), HasSubstr("every element right\n")));
  EXPECT_THAT(content_of(folder / "rank-0.log"),
              HasSubstr("NET/mesh: device 2: roce_eth0+roce_eth1, 20000 Mbit/s, merged by NCCL\n"));
}

TEST_F(NcclTest, AFailedRankEndsTheJobAtOnceAndItsWarningIsShown) {
  // h1 and h3 share no link, and there is no relay, so that h2 waits in init.
  const std::string result = output_of(run_shell("NCCL_PROFILER_PLUGIN=$(printf '\\033[31mred') exec " PLUGFEST_PROGRAM
                                                 " nccl allreduce --topology line:3 -b 8 -e 8"),
                                       1);
  EXPECT_THAT(result, ContainsRegex("\nplugfest: rank [02] on h[13]: init: ncclCommInitRank: [^\n]+\n(  log: [^\n]+\n)*"
                                    "  log:    [^\n]*NET/mesh: no NIC of this host reaches the peer: "));
  EXPECT_THAT(result, HasSubstr("NCCL_PROFILER_PLUGIN set by environment to ?[31mred\n"))
      << "control characters in logs are replaced";
}

TEST_F(NcclTest, NcclsOwnTransportsWork) {
  EXPECT_THAT(output_of(plugfest("nccl allreduce --plugin nccl:IB --topology star:2 -b 64K -e 64K -n 1")),
              AllOf(HasSubstr("network IB"), Not(HasSubstr("net plugin"))));
  EXPECT_THAT(output_of(plugfest("nccl allreduce --plugin nccl:Socket --topology pair -b 64K -e 64K -n 1")),
              HasSubstr("network Socket"));
}

TEST_F(NcclTest, IbNeedsNicsThatReachEachOther) {
  EXPECT_EQ(
      error_of("nccl allreduce --plugin nccl:IB -t triangle"),
      "plugfest: nccl:IB: it connects a.eth1 to b.eth1, which do not reach each other in triangle: add --topology "
      "star:3, or another one with switches\n");
}

TEST_F(NcclTest, BuiltInTransportsHaveOneVersion) {
  EXPECT_EQ(error_of("run --plugin nccl:IB --api v8"), "plugfest: nccl:IB: no net v8: it has v11\n");
  EXPECT_EQ(error_of("run --plugin nccl:GIN --api v12"), "plugfest: nccl:GIN: no gin v12: it has v11\n");
}

TEST_F(NcclTest, OtherPluginsGetOneSubnetUnlessTheUserWantsMore) {
  const std::string command = "nccl allreduce -b 8 -e 8 -n 1 --plugin " PLUGFEST_RENAMED_DEVICES;
  EXPECT_THAT(output_of(plugfest(command)),
              AllOf(HasSubstr("plugfest: topology star:3, which has one subnet: on triangle, NCCL connects devices of "
                              "different subnets, and a plugin has to route between them; -t triangle tests that\n"),
                    HasSubstr(" of star:3, no GPU")));
  const std::string wanted = output_of(plugfest(command + " -t triangle"), 1);
  EXPECT_THAT(
      wanted,
      AllOf(HasSubstr("\n  subnets: NCCL connects a.eth1 to b.eth1, which are in different subnets of triangle: "
                      "a plugin that does not route between subnets needs -t star:3\n"),
            Not(HasSubstr("topology star:3"))));
  const std::vector<std::string> lines = report::lines_of(wanted);
  EXPECT_LE(lines.size(), 50u) << "one log is enough";
}

TEST_F(NcclTest, RulesOfGinRunOnOneSubnetUnlessTheUserWantsMore) {
  const std::string run = "run --plugin nccl:GIN --rule GI-03 --verbose";
  EXPECT_THAT(output_of(plugfest(run)), AllOf(HasSubstr("plugfest: topology star:3, which has one subnet: "),
                                              HasSubstr(" 1 rule, star:3, "), HasSubstr("\npass    GI-03  ")));
  EXPECT_THAT(output_of(plugfest("run --interface gin --rule GI-03")), HasSubstr("triangle, "));
}

TEST_F(NcclTest, RulesRunOnTheSameTopologyAndTheirCommandsNameIt) {
  const Finished result = plugfest("run --rule EE-02,CN-01 --verbose --json - --plugin " PLUGFEST_MUTANTS
                                   "/libnccl-net-last_byte_corrupted.so");
  EXPECT_THAT(result.output, AllOf(HasSubstr("plugfest: topology star:3, which has one subnet: "),
                                   HasSubstr("\"topology\": \"star:3\""), HasSubstr(" --topology star:3 ")));
}

TEST_F(NcclTest, SeveralRanksOfAHostUseItsMemory) {
  EXPECT_THAT(output_of(plugfest("nccl allreduce --topology pair --ranks 4 -b 64K -e 64K -n 1")),
              AllOf(HasSubstr("# 4 ranks on 2 hosts of pair"), HasSubstr("SHM/direct/direct")));
}

// A collective that NCCL and the replay run three times.
struct Collective {
  std::string operation;
  std::size_t bytes = 0;
  std::string algorithm = "Ring", protocol = "Simple", topology = "triangle";

  bool between_pairs() const { return operation == "alltoall" || operation == "sendrecv"; }
  friend std::ostream& operator<<(std::ostream& out, const Collective& one) {
    return out << one.operation << " " << one.bytes << " " << one.algorithm << " " << one.protocol << " "
               << one.topology;
  }
};

// What a rank did on one comm: the sizes of its registrations and of its messages, in order.
struct SendComm {
  std::vector<std::size_t> registrations = {}, messages = {};
  auto operator<=>(const SendComm&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const SendComm& comm) {
    return out << "registrations " << testing::PrintToString(comm.registrations) << ", messages "
               << testing::PrintToString(comm.messages);
  }
};

// The calls of the ranks, by the tag of their messages, which is the rank's number.
struct Calls {
  std::map<int, std::multiset<SendComm>> sends;
  std::map<int, std::set<std::pair<std::size_t, int>>> receives;  // sizes of the buffers, and tags
};

// Runs `command` with the variant that records calls, and reads the records.
Calls calls_of(const Collective& collective, const std::string& command) {
  const ScratchFolder folder;
  output_of(run_shell("PLUGFEST_RECORD_CALLS=" + folder.path().string() + " NCCL_ALGO=" + collective.algorithm +
                      " NCCL_PROTO=" + collective.protocol + " NCCL_MAX_NCHANNELS=2 exec " PLUGFEST_PROGRAM " " +
                      command + " --topology " + collective.topology +
                      " --plugin " PLUGFEST_MUTANTS "/libnccl-net-records_calls.so"));
  Calls calls;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    std::map<std::string, SendComm> comms;
    std::set<std::pair<std::size_t, int>> receives;
    int rank = -1;
    std::ifstream lines(file.path());
    std::string call, comm;
    std::size_t size = 0;
    for (int tag = 0; lines >> call >> comm >> size >> tag;) {
      if (call == "regMr") comms[comm].registrations.push_back(size);
      if (call == "irecv") receives.emplace(size, tag);
      if (call != "isend") continue;
      rank = tag;
      comms[comm].messages.push_back(size);
    }
    for (auto& [name, one] : comms)
      if (!one.messages.empty()) calls.sends[rank].insert(std::move(one));
    if (rank >= 0) calls.receives[rank] = std::move(receives);
  }
  return calls;
}

// Removes the barriers of `plugfest nccl`, which are allreduces of one byte: on their comms, each operation out of
// place or in place begins with one; the second kind runs twice.
std::multiset<SendComm> without_barriers(const std::multiset<SendComm>& comms, const Collective& collective,
                                         std::size_t ranks) {
  const bool simple = collective.protocol == "Simple";
  const std::size_t slices = simple ? 2 : 1, line = simple ? 1 : 16;
  const auto messages_of_barrier =
      static_cast<std::ptrdiff_t>(collective.algorithm == "Tree" ? 1 : 2 * (ranks - 1) * slices);
  std::multiset<SendComm> rest;
  for (SendComm comm : comms) {
    std::vector<std::size_t>& messages = comm.messages;
    const auto end_of_barrier = messages.begin() + std::min(std::ssize(messages), messages_of_barrier);
    if (std::all_of(messages.begin(), end_of_barrier, [&](std::size_t size) { return size <= line; })) {
      messages.erase(messages.begin(), end_of_barrier);
      if (!collective.between_pairs()) {
        const auto second = messages.begin() + (std::ssize(messages) - messages_of_barrier) / 3;
        messages.erase(second, second + messages_of_barrier);
      }
    }
    if (!messages.empty()) rest.insert(std::move(comm));
  }
  return rest;
}

class ReplayAgainstNccl : public NcclTest, public testing::WithParamInterface<std::vector<Collective>> {};

TEST_P(ReplayAgainstNccl, MakesTheSameCalls) {
  for (const Collective& one : GetParam()) {
    const std::string size = " -b " + std::to_string(one.bytes) + " -e " + std::to_string(one.bytes);
    SCOPED_TRACE(one);
    // One that works in place runs twice more.
    const Calls nccl =
        calls_of(one, "nccl " + one.operation + size + (one.between_pairs() ? " -n 3" : " -n 1") + " -w 0");
    // An even seed: the receives of a message between two ranks are posted for its size, as NCCL 2.28.9 does.
    std::string coll = "coll " + one.operation + size + " -n 1 --api v10 --seed 2";
    if (!one.between_pairs()) coll += one.protocol == "LL" ? " --protocol ll" : " --protocol simple";
    if (one.algorithm == "Tree") coll += " --algo tree";
    const Calls replay = calls_of(one, coll);
    EXPECT_EQ(nccl.sends.size(), one.topology == "star:4" ? 4u : 3u);
    for (const auto& [rank, comms] : nccl.sends) {
      const auto found = replay.sends.find(rank);
      EXPECT_EQ(without_barriers(comms, one, nccl.sends.size()),
                found == replay.sends.end() ? std::multiset<SendComm>{} : found->second)
          << "rank " << rank;
    }
    for (const auto& [rank, receives] : replay.receives)
      for (const auto& receive : receives) EXPECT_THAT(nccl.receives.at(rank), testing::Contains(receive));
    if (!runs_long_tests()) break;
  }
}

using Collectives = std::vector<Collective>;

INSTANTIATE_TEST_SUITE_P(SimpleRings, ReplayAgainstNccl,
                         testing::Values(Collectives{{"allreduce", 24},
                                                     {"allreduce", 65532},
                                                     {"allreduce", 100'004},
                                                     {"allreduce", 20'000'004}},
                                         Collectives{{"allgather", 40008}, {"allgather", 3'000'000}},
                                         Collectives{{"reducescatter", 60000}, {"reducescatter", 3'000'000}},
                                         Collectives{{"broadcast", 50000}, {"broadcast", 3'000'004}}));

INSTANTIATE_TEST_SUITE_P(LlRings, ReplayAgainstNccl,
                         testing::Values(Collectives{{"allreduce", 24, "Ring", "LL"},
                                                     {"allreduce", 100'004, "Ring", "LL"}},
                                         Collectives{{"allgather", 300'000, "Ring", "LL"},
                                                     {"reducescatter", 120'000, "Ring", "LL"},
                                                     {"broadcast", 200'004, "Ring", "LL"}}));

// One NIC in each host: with two, NCCL's second channel has the tree of the first one. Of four ranks, two have two
// children.
INSTANTIATE_TEST_SUITE_P(Trees, ReplayAgainstNccl,
                         testing::Values(Collectives{{"allreduce", 65532, "Tree", "Simple", "star:3"},
                                                     {"allreduce", 3'000'000, "Tree", "Simple", "star:4"}},
                                         Collectives{{"allreduce", 8188, "Tree", "LL", "star:3"},
                                                     {"allreduce", 400'000, "Tree", "LL", "star:4"}}));

// PXN needs GPUs that NVLink connects, and so cannot be compared: see docs/nccl.md.
INSTANTIATE_TEST_SUITE_P(Pairs, ReplayAgainstNccl,
                         testing::Values(Collectives{{"alltoall", 300}, {"alltoall", 393'228}, {"alltoall", 3'145'728}},
                                         Collectives{{"sendrecv", 20000}, {"sendrecv", 4'000'000}}));

TEST_F(NcclTest, APluginThatLeavesDeviceMemoryToTheNicIsRight) {
  // The mesh plugin below does not know of device memory: it posts small messages inline, which the CPU copies, and
  // would copy those that arrive before their receive.
  EXPECT_THAT(
      output_of(run_shell(
          "NCCL_MESH_EAGER=0 exec " PLUGFEST_PROGRAM
          " nccl all --topology pair -b 2M -e 2M -n 1 --device-memory split --plugin " PLUGFEST_NCCL_GPU_PLUGIN)),
      AllOf(HasSubstr("net plugin MeshOnGpu (v11), "), HasSubstr("0 -> 1 NET/MeshOnGpu/0/GDRDMA"),
            HasSubstr("# 7 measurements, every element right\n")));
}

TEST_F(NcclTest, APluginThatCopiesDeviceMemoryWithTheCpuIsNamed) {
  const std::string command = "nccl sendrecv --topology pair -b 2M -e 2M -n 1 --plugin " PLUGFEST_NCCL_CPU_COPY_PLUGIN;
  EXPECT_EQ(plugfest(command).exit_code, 0) << "without split memory nothing tells";
  EXPECT_THAT(output_of(plugfest(command + " --device-memory split"), 1),
              ContainsRegex("plugfest: rank [0-2] on [abc]: the CPU accessed device memory in "
                            ".*copy_to_bounce_buffer.* of .*libnccl_cpu_copy_plugin.so: address 0x[0-9a-f]+, byte "));
}

}  // namespace
}  // namespace plugfest::cli
