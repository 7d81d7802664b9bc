#include "harness/kernels/front/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plugfest::kernels::front {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string error_of(const std::vector<std::string>& words) {
  try {
    parse(words);
    return "no error";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(NvccCommandLine, PassesOptionsOfTheCompiler) {
  const CommandLine line =
      parse({"-I",  "a",   "-Ib", "-DX=1", "-O3",      "-g", "-std=c++20", "-Xcompiler",  "-Wall,-fPIC", "k.cu",
             "-Lc", "-lm", "-o",  "k",     "-isystem", "d",  "-Xlinker",   "--as-needed", "--std",       "c++17"});
  EXPECT_THAT(line.inputs, ElementsAre("k.cu"));
  EXPECT_EQ(line.output, "k");
  EXPECT_THAT(line.preprocess, ElementsAre("-Ia", "-Ib", "-DX=1", "-isystem", "d"));
  EXPECT_THAT(line.compile, ElementsAre("-O3", "-g", "-std=c++20", "-Wall", "-fPIC", "-std=c++17"));
  EXPECT_THAT(line.link, ElementsAre("-Lc", "-lm", "-Xlinker", "--as-needed"));
  EXPECT_THAT(line.include_folders, ElementsAre("a", "b", "d"));
  EXPECT_FALSE(line.compile_only);
}

TEST(NvccCommandLine, IgnoresChoiceOfGpuAndReplacedLibraries) {
  const CommandLine line =
      parse({"-arch=sm_90", "-gencode", "arch=compute_90,code=sm_90", "--expt-extended-lambda", "-rdc=true", "-lcudart",
             "-lnccl", "-l", "cuda", "-Xptxas", "-v", "--use_fast_math", "-lineinfo", "-c", "a.cu"});
  EXPECT_THAT(line.inputs, ElementsAre("a.cu"));
  EXPECT_THAT(line.compile, IsEmpty());
  EXPECT_THAT(line.link, IsEmpty());
  EXPECT_TRUE(line.compile_only);
}

TEST(NvccCommandLine, SaysWhatIsWrong) {
  EXPECT_EQ(error_of({"-o", "k"}), "nvcc: no input: name a source, as in plugfest nvcc kernel.cu -o kernel");
  EXPECT_EQ(error_of({"k.cu", "-o"}), "nvcc: -o: expected a value after it");
  EXPECT_EQ(error_of({"k.cu", "-x", "ada"}), "nvcc: -x ada: expected cu: the ending of each file says its language");
  EXPECT_EQ(error_of({"--what", "k.cu"}),
            "nvcc: --what: unknown option: see plugfest nvcc --help, and pass options of the compiler with -Xcompiler");
  EXPECT_EQ(error_of({"k.py"}), "nvcc: k.py: expected a source (.cu, .cpp, .cc, .c), an object or a library");
  EXPECT_EQ(error_of({"-c", "a.cu", "b.cu", "-o", "x.o"}),
            "nvcc: -c with -o takes one source: compile each with a command of its own");
}

}  // namespace
}  // namespace plugfest::kernels::front
