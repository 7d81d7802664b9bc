// Libraries that cannot be used. Each test runs in a separate process, because a process loads NCCL only once.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "fabric/system/testing.h"
#include "harness/nccl/cuda/runtime.h"
#include "harness/nccl/load.h"
#include "harness/plugin/inspect.h"
#include "harness/plugin/nccl.h"

namespace plugfest::nccl {
namespace {

// Prints open_nccl()'s error and exits with 2, or exits with 0.
[[noreturn]] void open_and_exit(const std::string& library) {
  ::setenv("NCCL_LIBRARY", library.c_str(), 1);
  try {
    open_nccl();
  } catch (const plugin::LoadError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(2);
  }
  std::_Exit(0);
}

class LoadDeathTest : public testing::Test {
 protected:
  // The path of a library with this source.
  std::string compiled(const std::string& source, const std::string& options = "") const {
    const std::string path = folder_ / "libnccl.so.2";
    EXPECT_EQ(
        run_shell("printf '%s\\n' '" + source + "' | c++ -x c++ -shared -fPIC -o " + path + " - " + options).exit_code,
        0);
    return path;
  }

 private:
  const ScratchFolder folder_;
};

TEST_F(LoadDeathTest, RefusesALibraryThatIsNotNccl) {
  const std::string library = compiled("int x;");
  EXPECT_EXIT(open_and_exit(library), testing::ExitedWithCode(2),
              "nccl: .*/libnccl.so.2 is not NCCL: it has no ncclGetVersion");
}

TEST_F(LoadDeathTest, RefusesAnUnknownRelease) {
  const std::string library = compiled("extern \"C\" int ncclGetVersion(int* v) { *v = 22005; return 0; }");
  EXPECT_EXIT(open_and_exit(library), testing::ExitedWithCode(2),
              "libnccl.so.2 is NCCL 2.20.5, and plugfest emulates only the kernels of 2.28.9: set NCCL_LIBRARY to that "
              "release");
}

TEST_F(LoadDeathTest, RefusesAStrippedLibrary) {
  const std::string library = compiled("extern \"C\" int ncclGetVersion(int* v) { *v = 22809; return 0; }", "-s");
  EXPECT_EXIT(
      open_and_exit(library), testing::ExitedWithCode(2),
      "libnccl.so.2 has no symbol cudaMalloc: its static symbol table is stripped, or it is not NVIDIA's build");
}

TEST_F(LoadDeathTest, ATrapNamesItsFunction) {
  void* const trap = make_trap("cudaGraphAddNode");
  if (trap == nullptr) GTEST_SKIP() << "no code of traps for this architecture";
  make_trap("cudaOther");
  EXPECT_EXIT(reinterpret_cast<int (*)(int)>(trap)(1), testing::ExitedWithCode(2),
              "^plugfest-nccl: cudaGraphAddNode: no stand-in for this function of CUDA\n$");
}

}  // namespace
}  // namespace plugfest::nccl
