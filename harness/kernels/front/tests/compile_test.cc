// plugfest nvcc with the C++ compiler, the CUDA and NCCL headers, and the execution in libplugfest-cuda.so. Tests that
// need the headers are skipped where they are not installed.
#include "harness/kernels/front/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fabric/system/file.h"
#include "fabric/system/process.h"
#include "fabric/system/scratch_folder.h"
#include "harness/plugin/nccl.h"
#include "test_paths.h"

namespace plugfest::kernels::front {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class NvccTest : public testing::Test {
 protected:
  // Compiles; what the compiler wrote to standard error goes to `messages`.
  int run(const std::vector<std::string>& words, std::string* messages = nullptr) {
    testing::internal::CaptureStderr();
    int code = -1;
    try {
      code = compile(parse(words), {PLUGFEST_KERNEL_HEADERS, PLUGFEST_NCCL_LIBRARIES, plugin::find_nccl()});
    } catch (...) {
      testing::internal::GetCapturedStderr();
      throw;
    }
    const std::string written = testing::internal::GetCapturedStderr();
    if (messages == nullptr)
      EXPECT_EQ(written, "");
    else
      *messages = written;
    return code;
  }
  std::string error_of(const std::vector<std::string>& words) {
    try {
      return "no error: " + std::to_string(run(words));
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }

  ScratchFolder folder_;
};

class NvccWithHeadersTest : public NvccTest {
 protected:
  void SetUp() override {
    if (cuda_headers().empty()) GTEST_SKIP() << "no CUDA headers";
  }
};

class NvccWithNcclTest : public NvccWithHeadersTest {
 protected:
  void SetUp() override {
    NvccWithHeadersTest::SetUp();
    if (!std::filesystem::exists(cuda_headers() + "/nccl_device.h") || plugin::find_nccl().empty())
      GTEST_SKIP() << "no NCCL with its device API";
  }
};

TEST_F(NvccWithHeadersTest, RunsTheLanguageOfCuda) {
  ASSERT_EQ(run({std::string(PLUGFEST_KERNEL_SOURCES) + "/language.cu", "-o", path("language")}), 0);
  const Finished finished = run_program({path("language")});
  EXPECT_EQ(finished.exit_code, 0) << finished.output << finished.errors;
  EXPECT_EQ(finished.output, "");
}

TEST_F(NvccWithNcclTest, CompilesTheDeviceApiOfNccl) {
  ASSERT_EQ(run({"-std=c++20", "-c", std::string(PLUGFEST_KERNEL_SOURCES) + "/device_api.cu", "-o", path("api.o")}), 0);
  EXPECT_EQ(run({path("api.o"), "-o", path("api")}), 0);
  for (const char* const function : {"plugfest_kernel_post", "plugfest_kernel_expect"})
    EXPECT_THAT(read_file(path("api.o")), HasSubstr(function)) << "--weak and verdicts need it";
}

TEST_F(NvccWithHeadersTest, MessagesNameTheLinesOfTheUser) {
  std::string messages;
  const std::string source = write("k.cu", "__global__ void k(int* a) {\n  *a = missing;\n}\n");
  EXPECT_EQ(run({"-c", source, "-o", path("k.o")}, &messages), 2);
  EXPECT_THAT(messages, HasSubstr(source + ":2:8: error: ‘missing’ was not declared in this scope"));
}

TEST_F(NvccWithHeadersTest, ReportsInstructionsThatAreNotEmulated) {
  std::string messages;
  const std::string source =
      write("k.cu", "__global__ void k() {\n  asm volatile(\"wgmma.fence.sync.aligned;\");\n}\n");
  EXPECT_EQ(run({"-c", source, "-o", path("k.o")}, &messages), 2);
  EXPECT_THAT(messages, HasSubstr(source + ":2:"));
  EXPECT_THAT(messages, HasSubstr("asm \"wgmma.fence.sync.aligned;\": this PTX instruction is not emulated"));
}

TEST_F(NvccWithHeadersTest, LinksSeveralSourcesAndKeepsIntermediateFiles) {
  const std::string kernel =
      write("k.cu", "__global__ void k(int* a) { *a = 3; }\nvoid start(int* a) { k<<<1, 1>>>(a); }\n");
  const std::string other =
      write("m.cpp",
            "#include <cuda_runtime.h>\nvoid start(int*);\nint main() { void* a; cudaMalloc(&a, 4); "
            "start((int*)a); cudaDeviceSynchronize(); return *(int*)a; }\n");
  std::string commands;
  ASSERT_EQ(run({kernel, other, "-o", path("m"), "--keep", path("kept"), "--print-commands"}, &commands), 0);
  EXPECT_EQ(run_program({path("m")}).exit_code, 3);
  EXPECT_THAT(read_file(path("kept/0-k.ii")), HasSubstr("::plugfest::kernels::configure(1, 1)"));
  EXPECT_THAT(commands, StartsWith("g++ "));
}

TEST_F(NvccWithHeadersTest, SaysWhatIsMissing) {
  EXPECT_EQ(error_of({path("none.cu")}), "nvcc: " + path("none.cu") + ": no such file");
  const std::string source = write("k.cu", "f<<<1;\n");
  EXPECT_EQ(error_of({"-c", source, "-o", path("k.o")}), source + ":1: this <<< has no >>>");
  EXPECT_EQ(error_of({"-ccbin", "no-such-compiler", "-c", source}),
            "nvcc: no-such-compiler: no such compiler: install g++ (apt-get install g++), or name one with -ccbin");
}

TEST_F(NvccTest, SaysThatHeadersAreMissing) {
  if (std::filesystem::exists("/usr/local/cuda/include/cuda_runtime_api.h")) GTEST_SKIP() << "CUDA is installed";
  EXPECT_EQ(error_of({write("k.cu", "")}),
            "nvcc: no CUDA headers: install the toolkit or its package cuda-cudart-dev, and set CUDA_HOME to its "
            "folder, or name the folder of cuda_runtime_api.h with -I");
}

}  // namespace
}  // namespace plugfest::kernels::front
