// The examples of kernels that use NCCL's device API: plugfest nvcc compiles them, plugfest nccl exec runs them on the
// unmodified NCCL. Each test compiles a program, which takes some 5 s of CPU time.
#include "harness/cli/tests/program.h"
#include "harness/kernels/front/compile.h"
#include "harness/plugin/nccl.h"

namespace plugfest::cli {
namespace {

using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class DeviceKernels : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    if (kernels::front::cuda_headers().empty()) GTEST_SKIP() << "no CUDA headers";
    if (!std::filesystem::exists(kernels::front::cuda_headers() + "/nccl_device.h"))
      GTEST_SKIP() << "no NCCL device headers";
    if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2: run\n    " << plugin::kFetchNccl;
  }

  void compile(const std::string& name) {
    const std::string examples = PLUGFEST_EXAMPLES;
    ASSERT_EQ(plugfest("nvcc -I" + examples + "/nccl-program " + examples + "/device-kernels/" + name + ".cu " +
                       examples + "/nccl-program/rendezvous.cc -o kernels"),
              0)
        << output();
  }
  // Runs the program; returns the exit code of nccl exec.
  int exec(const std::string& options, const std::string& arguments = "") {
    return plugfest("nccl exec --timeout 100 " + options + " -- ./kernels " + arguments);
  }
  void expect_right(const std::string& options, int ranks) {
    EXPECT_EQ(exec(options + " --ranks " + std::to_string(ranks)), 0) << output();
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_THAT(output(), ContainsRegex("rank " + std::to_string(rank) + ": [a-z]+ of [0-9]+ elements: 0 wrong"));
  }
  // Whether one of some seeds shows a mistake.
  bool is_found(const std::string& options, const std::string& mistake) {
    for (int seed = 1; seed <= 10; ++seed)
      if (exec("--weak --seed " + std::to_string(seed) + " " + options, mistake) == 1) return true;
    return false;
  }
};

TEST_F(DeviceKernels, AddUpByLoadsAndStoresInAHostAndInAnNvlinkDomain) {
  compile("allreduce_lsa");
  expect_right("--topology star:1", 2);
  expect_right("--topology star:1", 8);
  expect_right("--topology triangle --nvlink-domain all", 6);
}

TEST_F(DeviceKernels, AddUpByMulticastAddresses) {
  compile("allreduce_multimem");
  expect_right("--topology star:1", 2);
  expect_right("--topology star:1", 8);
  expect_right("--topology star:2 --nvlink-domain all", 4);
}

TEST_F(DeviceKernels, PutOverTheNetworkThroughThePluginAndThroughNccl) {
  compile("alltoall_gin");
  expect_right("--topology star:2 --plugin nccl:IB", 2);
  expect_right("--topology fat-tree:4", 8);
}

TEST_F(DeviceKernels, FailIfTheirBarriersAreWrong) {
  compile("mistakes");
  const std::string host = "--topology star:1 --ranks 2";
  for (int seed = 1; seed <= 3; ++seed)
    EXPECT_EQ(exec("--weak --seed " + std::to_string(seed) + " " + host, "none"), 0) << output();
  for (const char* const mistake :
       {"no-first-barrier", "relaxed-first-barrier", "no-last-barrier", "relaxed-last-barrier"})
    EXPECT_TRUE(is_found(host, mistake)) << mistake;

  EXPECT_EQ(exec(host, "different-barriers"), 1);
  EXPECT_THAT(output(), ContainsRegex("plugfest: rank [01] on h1: kernel different_barriers, block .*: threads of a "
                                      "block wait at different barriers: [0-9]+ at .*mistakes.cu:[0-9]+, another one "
                                      "at .*mistakes.cu:[0-9]+"));
  EXPECT_EQ(exec(host, "wrong-mask"), 1);
  EXPECT_THAT(output(), HasSubstr("kernel wrong_mask hangs: all threads of a block wait for each other"));
  EXPECT_EQ(exec(host, "ordinary-multicast"), 1);
  EXPECT_THAT(output(), HasSubstr("an ordinary instruction accessed a multicast address"));
}

TEST_F(DeviceKernels, FailIfTheirUseOfTheNetworkIsWrong) {
  compile("mistakes");
  EXPECT_EQ(exec("--weak --seed 1 --topology star:3", "no-gin-mistake"), 0) << output();
  for (const char* const mistake : {"no-wait", "no-flush", "relayed-signal"})
    EXPECT_TRUE(is_found("--topology star:3", mistake)) << mistake;
  EXPECT_EQ(exec("--topology star:2", "signal-outside"), 1);
  EXPECT_THAT(output(), ContainsRegex("kernel alltoall, block .*: an access to an address without memory: address 0x"));
  // The kernel may wait for two seconds instead of for half a minute.
  ::setenv("PLUGFEST_KERNEL_TIMEOUT", "2", 1);
  EXPECT_EQ(exec("--topology star:2", "put-outside"), 1);
  // On a busy machine, the kernel of one rank may give up before NCCL's proxy has posted its puts.
  EXPECT_THAT(output(), ContainsRegex("plugfest: rank [01] on h[12], NCCL: NET/mesh: memory of rank [01]: bytes [0-9]+ "
                                      "to [0-9]+ of a registration of [0-9]+ bytes"));
  EXPECT_EQ(exec("--topology star:2", "too-many-signals"), 1);
  EXPECT_THAT(output(), HasSubstr("kernel alltoall hangs: no thread has made progress for "));
  EXPECT_THAT(output(),
              ContainsRegex("\n\\[0\\]   block \\(0,0,0\\), thread \\(0,0,0\\) waits for signal 0 of context 0: it "
                            "is 2, wanted 3\n\\[0\\]     in alltoall.* at .*mistakes.cu:[0-9]+\n"));
  EXPECT_EQ(exec("--topology star:1 --ranks 2", "barrier-of-one-rank"), 1);
  ::unsetenv("PLUGFEST_KERNEL_TIMEOUT");
  EXPECT_THAT(output(), HasSubstr("thread (0,0,0) waits for an LSA barrier: it is 0, wanted 1"));
  EXPECT_THAT(output(), Not(HasSubstr("launch.h")));
}

TEST_F(DeviceKernels, NameTheDeadRankForWhichTheyWait) {
  compile("mistakes");
  EXPECT_EQ(exec("--topology star:3", "dead-rank"), 1);
  EXPECT_THAT(output(), HasSubstr("\nplugfest: rank 1 on h2 was ended by SIGKILL, while kernel alltoall of ranks "
                                  "0, 2 waited\n"));
  EXPECT_THAT(output(), Not(AnyOf(HasSubstr("hangs"), HasSubstr("still ran"), HasSubstr("mistakes.cu"))));
}

}  // namespace
}  // namespace plugfest::cli
