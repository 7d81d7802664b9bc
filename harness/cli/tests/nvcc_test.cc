// plugfest nvcc and its CMake function. harness/kernels/front/tests contains the tests of the compiler front.
#include "harness/cli/tests/program.h"
#include "harness/kernels/front/compile.h"

namespace plugfest::cli {
namespace {

using testing::HasSubstr;

class NvccCommandTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    if (kernels::front::cuda_headers().empty()) GTEST_SKIP() << "no CUDA headers";
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
};

constexpr const char* kProgram =
    "__global__ void k(int* a) { atomicAdd(a, VALUE); }\n"
    "int main() { int* a; cudaMalloc(&a, 4); cudaMemset(a, 0, 4); k<<<2, 3>>>(a); cudaDeviceSynchronize(); return *a; "
    "}\n";

TEST_F(NvccCommandTest, CompilesProgramWithOptionsOfNvcc) {
  write("k.cu", kProgram);
  ASSERT_EQ(plugfest("nvcc -arch=sm_90 -O1 -DVALUE=7 k.cu -o k"), 0) << output();
  EXPECT_EQ(run_program({folder_ / "k"}).exit_code, 42);
}

TEST_F(NvccCommandTest, CompilesProgramWithClang) {
  const char* const clang = "clang++-14";
  if (run_program({clang, "--version"}).exit_code != 0) GTEST_SKIP() << "no " << clang;
  // Clang calls memcpy for the structure.
  write("k.cu",
        "struct Row { long words[16]; };\n"
        "__global__ void k(Row* rows, int* a) {\n"
        "  rows[threadIdx.x].words[3] = threadIdx.x;\n"
        "  const Row row = rows[threadIdx.x];\n"
        "  atomicAdd(a, static_cast<int>(row.words[3]));\n"
        "}\n"
        "int main() {\n"
        "  Row* rows; int* a;\n"
        "  cudaMalloc(&rows, 4 * sizeof(Row)); cudaMalloc(&a, 4); cudaMemset(a, 0, 4);\n"
        "  k<<<7, 4>>>(rows, a); cudaDeviceSynchronize(); return *a;\n"
        "}\n");
  ASSERT_EQ(plugfest("nvcc -ccbin " + std::string(clang) + " k.cu -o k"), 0) << output();
  EXPECT_EQ(run_program({folder_ / "k"}).exit_code, 42);
}

TEST_F(NvccCommandTest, ReportsWhatIsMissing) {
  EXPECT_EQ(error_of("nvcc none.cu"), "plugfest: nvcc: none.cu: no such file\n");
  EXPECT_EQ(error_of("nvcc -O2"), "plugfest: nvcc: no input: name a source, as in plugfest nvcc kernel.cu -o kernel\n");
}

TEST_F(NvccCommandTest, CmakeFunctionBuildsProgram) {
  write("k.cu", kProgram);
  write("CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.20)\nproject(k LANGUAGES NONE)\nfind_package(plugfest REQUIRED)\n"
        "plugfest_add_cuda_program(k k.cu OPTIONS -DVALUE=5)\n");
  const std::string folder = folder_.path(),
                    options = " -Dplugfest_DIR=" PLUGFEST_CMAKE " -DPLUGFEST_PROGRAM=" PLUGFEST_PROGRAM;
  const Finished built =
      run_shell("cmake -S " + folder + " -B " + folder + "/build" + options + " && cmake --build " + folder + "/build");
  ASSERT_EQ(built.exit_code, 0) << built.output;
  EXPECT_EQ(run_program({folder_ / "build/cuda/k"}).exit_code, 30);
}

}  // namespace
}  // namespace plugfest::cli
