// Jobs of NCCL itself. Skipped where there is no libnccl.so.2. Takes many seconds of CPU time, because NCCL sets
// up each communicator among several ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "fabric/reduction/processes.h"
#include "fabric/system/file.h"
#include "fabric/system/testing.h"
#include "fabric/topology/graph.h"
#include "harness/bed/nic_kind.h"
#include "harness/nccl/commands.h"
#include "harness/nccl/job_ranks.h"
#include "harness/nccl/load.h"
#include "harness/nccl/log_summary.h"
#include "harness/nccl/rank_environment.h"
#include "harness/plugin/nccl.h"
#include "test_paths.h"

namespace plugfest::nccl {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// An allreduce of floats.
Run all_reduce(const std::string& communicator, std::size_t bytes, int iterations) {
  return {communicator, {.bytes = bytes, .iterations = iterations, .seed = 7}};
}

// Prints the ranks' logs if the test fails.
class LoggedGroup : public JobRanks {
 public:
  using JobRanks::JobRanks;
  ~LoggedGroup() {
    if (std::uncaught_exceptions() == 0 && !testing::Test::HasFailure()) return;
    for (int rank = 0; rank < size(); ++rank) std::printf("log of rank %d:\n%s\n", rank, log(rank).c_str());
  }
};

class JobTest : public testing::Test {
 protected:
  void SetUp() override {
    if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2: run\n    " << plugin::kFetchNccl;
  }
};

TEST_F(JobTest, ARankThatDiesGivesTheOthersAnErrorAndTheyCanAbort) {
  bed::TestBed bed = bed::roce_test_bed(topology::named("pair"), true);
  // NCCL's own transport notices at once that a connection is closed.
  LoggedGroup group(bed, {.plugin = "nccl:Socket"});
  group.init();
  group.all(all_reduce("world", 1024, 1));
  // The kernel of rank 0 waits for rank 1, which takes no part.
  group.send(0, all_reduce("world", 1 << 20, 1));
  group.kill(1);
  const Answer answer = group.receive(0);
  EXPECT_FALSE(answer.ok);
  EXPECT_THAT(answer.text, HasSubstr("asynchronous error: "));
  group.send(0, Abort{{"world"}});
  EXPECT_TRUE(group.receive(0).ok);
}

TEST_F(JobTest, ARankThatRunsOnWithoutItsConnectionIsKilled) {
  bed::TestBed bed = bed::roce_test_bed(topology::named("pair"), true);
  JobRanks group(bed, {.plugin = "nccl:Socket"});
  // Ends the connection of a stopped rank, as a plugin would that closes descriptor 3 and then hangs.
  ASSERT_EQ(::kill(group.process(0), SIGSTOP), 0);
  const Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, group.process(0), 0)));
  const Descriptor connection(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), kControlFd, 0)));
  ASSERT_EQ(shutdown(connection.get(), SHUT_RDWR), 0);
  EXPECT_EQ(error_message([&] { group.receive(0); }),
            "rank 0 on a closed its connection to plugfest, descriptor 3, and was killed");
  EXPECT_EQ(group.process(0), -1);
}

// Alone, the abort of "world" would wait for the kernel of "other": the buffers of connections are freed with cudaFree
// and cudaFreeHost, which wait for all kernels.
TEST_F(JobTest, AGroupAbortsCommunicatorsOfWhichOneHangs) {
  bed::TestBed bed = bed::roce_test_bed(topology::named("pair"), true);
  LoggedGroup group(bed, {.plugin = PLUGFEST_MESH});
  for (const char* communicator : {"world", "other"}) {
    group.init(communicator);
    group.all(all_reduce(communicator, 1024, 1));
  }
  // The kernel of rank 0 waits for rank 1, which takes no part.
  group.send(0, all_reduce("other", 1 << 20, 1));
  group.send(0, Abort{{"world", "other"}});
  EXPECT_FALSE(group.receive(0).ok);
  EXPECT_TRUE(group.receive(0).ok);
}

TEST_F(JobTest, TakesCollNetForWhatThePluginReduces) {
  bed::TestBed bed = bed::roce_test_bed(topology::named("star:2"), true);
  bed.start_reduction();
  // The chain of a host has two ranks.
  LoggedGroup group(bed,
                    {.plugin = PLUGFEST_SHARP_PLUGIN, .ranks = 4, .environment = algorithm_environment("collnet")});
  group.init();
  EXPECT_EQ(coll_net_fallback(group.logs()), "");
  auto run = all_reduce("world", 100'000, 2);
  for (const Answer& answer : group.all(run)) EXPECT_EQ(answer.outcome.wrong(), 0u) << answer.outcome.first_wrong;
  // A refused operation leaves the communicator as it was.
  auto refused = run;
  refused.measurement.type = device::Type::kE4m3;
  for (const Answer& answer : group.all(refused, kInvalidUsage)) EXPECT_EQ(answer.code, kInvalidUsage);
  // The heads divide the sum, which the switches compute.
  run.measurement.type = device::Type::kInt32;
  run.measurement.redop = RedOp::kAverage;
  for (const Answer& answer : group.all(run)) EXPECT_EQ(answer.outcome.wrong(), 0u) << answer.outcome.first_wrong;
  EXPECT_THAT(algorithms_text(summarize(group.log(0))), StartsWith("AllReduce COLLNET_CHAIN SIMPLE x"));
}

TEST_F(JobTest, NcclGoesOnWithoutCollNetIfThereIsNoManager) {
  bed::TestBed bed = bed::roce_test_bed(topology::named("star:2"), true);
  LoggedGroup group(bed, {.plugin = PLUGFEST_SHARP_PLUGIN, .environment = {{"NCCL_COLLNET_ENABLE", "1"}}});
  group.init();
  EXPECT_THAT(coll_net_fallback(group.logs()),
              HasSubstr("rank 0: COLLNET/sharp: sharp_coll_init: no aggregation manager"));
  for (const Answer& answer : group.all(all_reduce("world", 100'000, 2)))
    EXPECT_EQ(answer.outcome.wrong(), 0u) << answer.outcome.first_wrong;
}

TEST_F(JobTest, AllRanksGetAnErrorWhenAnAggregationNodeDies) {
  bed::TestBed bed = bed::roce_test_bed(topology::named("star:3"), true);
  const reduction::Processes switches(bed.fabric(), reduction::aggregation_program(), "star:3");
  bed.use_reduction();
  LoggedGroup group(bed, {.plugin = PLUGFEST_SHARP_PLUGIN, .environment = algorithm_environment("collnet")});
  group.init();
  for (const int rank : group.all_ranks()) group.send(rank, Churn{"world", 1 << 16, 1'000'000, 7});
  for (const int rank : group.all_ranks()) EXPECT_TRUE(group.receive(rank).is_running);
  kill(switches.ids().back(), SIGKILL);
  for (const int rank : group.all_ranks()) {
    const Answer answer = group.receive(rank);
    EXPECT_FALSE(answer.ok) << rank;
    EXPECT_THAT(answer.text, HasSubstr("asynchronous error: ")) << rank;
    EXPECT_THAT(group.log(rank), HasSubstr("the group has failed (-1)")) << rank;
  }
}

TEST_F(JobTest, CommunicatorsAreSplitAndDestroyedInAnyOrder) {
  bed::TestBed bed = bed::roce_test_bed(topology::named("triangle"), true);
  LoggedGroup group(bed, {.plugin = PLUGFEST_MESH});
  group.init();
  // The same order of ranks, then the reverse.
  for (const Answer& answer : group.all(Split{"world", 0, 0, "same"})) EXPECT_EQ(answer.ranks, 3);
  for (int rank = 0; rank < 3; ++rank) group.send(rank, Split{"world", 0, 3 - rank, "reverse"});
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(group.receive(rank).ok);
  for (const char* communicator : {"reverse", "world", "same"})
    for (const Answer& answer : group.all(all_reduce(communicator, 100000, 2)))
      EXPECT_EQ(answer.outcome.wrong(), 0u) << communicator << ": " << answer.outcome.first_wrong;
  group.all(Destroy{"same"});
  group.all(all_reduce("world", 1000, 1));
  group.all(Destroy{"world"});
  group.all(all_reduce("reverse", 1000, 1));
  group.all(Destroy{"reverse"});
}

}  // namespace
}  // namespace plugfest::nccl
