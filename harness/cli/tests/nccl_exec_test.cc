// plugfest nccl exec. Skipped where there is no libnccl.so.2. Programs are compiled here, without NVIDIA's headers;
// examples/passes runs one that uses NCCL.
#include <signal.h>

#include "harness/cli/tests/program.h"
#include "harness/plugin/nccl.h"

namespace plugfest::cli {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(NcclExecOptions, AreRefusedIfInvalid) {
  EXPECT_THAT(error_of("nccl exec"), HasSubstr("plugfest: PROGRAM is missing; see "));
  EXPECT_THAT(error_of("nccl exec --device-memory both -- true"),
              HasSubstr("plugfest: --device-memory \"both\": expected shared or split; see "));
  EXPECT_THAT(error_of("nccl exec --timeout 0 -- true"), HasSubstr("--timeout \"0\": expected a number above 0, "));
  EXPECT_EQ(error_of("nccl exec --device-api --gpu -- true"),
            "plugfest: --device-api excludes --gpu: leave out one of them\n");
  EXPECT_EQ(error_of("nccl exec --nvlink-domain all --gpu -- true"),
            "plugfest: --nvlink-domain all excludes --gpu: leave out one of them\n");
  EXPECT_THAT(error_of("nccl exec --nvlink-domain rack -- true"),
              HasSubstr("plugfest: --nvlink-domain \"rack\": expected host or all; see "));
  EXPECT_EQ(error_of("nccl exec --device-api --device-memory split -- true"),
            "plugfest: --device-api excludes --device-memory split: leave out one of them\n");
  EXPECT_EQ(error_of("nccl exec --gpu --weak -- true"), "plugfest: --weak excludes --gpu: leave out one of them\n");
  EXPECT_EQ(error_of("nccl exec --gpu --seed 7 -- true"), "plugfest: --seed excludes --gpu: leave out one of them\n");
  EXPECT_EQ(error_of("nccl exec --ranks 2 --ranks-per-host 2 -- true"),
            "plugfest: --ranks excludes --ranks-per-host: leave out one of them\n");
  EXPECT_EQ(error_of("nccl exec -- true", [] { ::setenv("NCCL_LIBRARY", "/with space/libnccl.so.2", 1); }),
            "plugfest: /with space/libnccl.so.2: LD_PRELOAD cannot express a path with a space, : or ;: copy the "
            "library elsewhere\n");
}

class NcclExecTest : public testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a library with a sanitizer cannot be preloaded into programs without it";
    if (plugin::find_nccl().empty()) GTEST_SKIP() << "no libnccl.so.2: run\n    " << plugin::kFetchNccl;
  }

  // Compiles a program that is linked with the stand-ins as with a CUDA runtime. Returns its path.
  std::string program(const std::string& source) const {
    const std::string path = (folder_ / "program").string();
    const Finished built =
        run_shell("c++ -x c++ - -o " + path + " -L" PLUGFEST_NCCL_LIBRARIES " -l:libplugfest-cuda.so <<'END'\n" +
                  "#include <cstdio>\nextern \"C\" int cudaMalloc(void**, unsigned long);\n"
                  "extern \"C\" int cudaGraphCreate(void**, unsigned);\n" +
                  source + "\nEND");
    EXPECT_EQ(built.exit_code, 0) << built.output;
    return path;
  }

 private:
  const ScratchFolder folder_;
};

TEST_F(NcclExecTest, RanksGetTheVariablesOfLaunchers) {
  const std::string result = output_of(
      plugfest("nccl exec --topology pair --ranks 4 -- sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
               "$MASTER_ADDR:$MASTER_PORT $OMPI_COMM_WORLD_RANK $NCCL_HOSTID $(hostname) >&$((RANK % 2 + 1))'"));
  EXPECT_THAT(
      result,
      AllOf(HasSubstr("[0] 0/4 0/2 10.255.0.1:29500 0 a a\n"), HasSubstr("[1] 1/4 1/2 10.255.0.1:29500 1 a a\n"),
            HasSubstr("[2] 2/4 0/2 10.255.0.1:29500 2 b b\n"), HasSubstr("[3] 3/4 1/2 10.255.0.1:29500 3 b b\n")));
  EXPECT_THAT(result, HasSubstr("plugfest: no rank has created a communicator"));
}

TEST_F(NcclExecTest, RanksGetTheVariablesOfTheAlgorithm) {
  EXPECT_THAT(output_of(plugfest("nccl exec --algo collnet -- sh -c 'echo $NCCL_COLLNET_ENABLE $NCCL_ALGO; echo "
                                 "${PLUGFEST_SHARP_MANAGER:+manager} $(basename $NCCL_NET_PLUGIN)'")),
              AllOf(HasSubstr("[2] 1 allreduce:collnetchain,collnetdirect\n"),
                    HasSubstr("[2] manager libnccl-net-sharp.so\n")));
}

TEST_F(NcclExecTest, TheExitCodeIsThatOfTheWorstRank) {
  EXPECT_THAT(output_of(plugfest("nccl exec --topology pair -- sh -c 'exit $((RANK * 2))'"), 1),
              HasSubstr("plugfest: rank 1 on b ended with code 2\n"));
  EXPECT_THAT(output_of(plugfest("nccl exec --topology pair -- sh -c '[ $RANK = 0 ] || kill -9 $$'"), 1),
              HasSubstr("plugfest: rank 1 on b was ended by SIGKILL\n"));
}

TEST_F(NcclExecTest, ARankThatHangsIsKilledWithItsChildren) {
  EXPECT_THAT(
      output_of(
          plugfest(
              "nccl exec --topology pair --timeout 3 -- sh -c 'printf begun; [ $RANK = 0 ] || sleep 1000; exit 0'"),
          1),
      AllOf(HasSubstr("[1] begun\n"), HasSubstr("plugfest: rank 1 on b still ran after 3 s\n"),
            Not(HasSubstr("rank 0 on a "))));
}

TEST_F(NcclExecTest, ASignalEndsTheRanks) {
  const ScratchFolder folder;
  const pid_t child = start_plugfest(
      {"nccl", "exec", "--topology", "pair", "--", "sh", "-c", "echo started; sleep 1000"}, folder / "output");
  await_output(folder / "output", "started");
  ::kill(child, SIGINT);
  EXPECT_EQ(await_exit(child), 128 + SIGINT);
}

TEST_F(NcclExecTest, AFunctionWithoutStandInIsNamed) {
  EXPECT_THAT(
      output_of(
          plugfest("nccl exec --topology pair -- " + program("int main() { return cudaGraphCreate(nullptr, 0); }")), 2),
      HasSubstr("plugfest: rank 1 on b: cudaGraphCreate: no stand-in for this function of CUDA\n"));
}

TEST_F(NcclExecTest, AnAccessToDeviceMemoryByTheCpuIsReportedIfMemoryIsSplit) {
  const std::string path = program(
      "void write_to(char* address) { *address = 1; }\n"
      "int main() { void* memory = nullptr; cudaMalloc(&memory, 10); write_to(static_cast<char*>(memory) + 3); }");
  EXPECT_EQ(plugfest("nccl exec --topology pair -- " + path).exit_code, 0);
  EXPECT_THAT(output_of(plugfest("nccl exec --topology pair --device-memory split -- " + path), 1),
              ContainsRegex("fault: the CPU accessed device memory in write_to\\(char\\*\\) of "
                            ".*/program: address 0x[0-9a-f]+, byte 3 of 10 bytes from cudaMalloc\n"));
}

TEST_F(NcclExecTest, AProgramThatDoesNotExistIsAnError) {
  EXPECT_THAT(error_of("nccl exec --topology pair -- ./nothing"), HasSubstr("./nothing"));
}

}  // namespace
}  // namespace plugfest::cli
