// The two views of device memory. They last until the process ends, so the tests run in children.
#include "harness/traffic/nccl/memory/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "harness/traffic/nccl/cuda/runtime.h"
#include "harness/traffic/nccl/memory/fault.h"

namespace plugfest::nccl::cuda {
namespace {

class SplitMemoryDeathTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer reports the allocations of a signal handler that ends the process";
#endif
  }
};

char* split_memory(std::size_t bytes) {
  ::setenv(kDeviceMemoryVariable, "split", 1);
  void* address = nullptr;
  if (cudaMalloc(&address, bytes) != kSuccess) std::_Exit(3);
  return static_cast<char*>(address);
}

[[gnu::noinline]] void touch(volatile char* address) { *address = 1; }

TEST_F(SplitMemoryDeathTest, AnAccessByTheCpuNamesFunctionAndAddress) {
  EXPECT_EXIT(
      touch(split_memory(1000) + 17), testing::ExitedWithCode(kFaultCode),
      "^plugfest-nccl fault: the CPU accessed device memory in .*touch.* of .*nccl_cuda_test: address 0x[0-9a-f]+, "
      "byte 17 of 1000 bytes from cudaMalloc\n$");
}

TEST_F(SplitMemoryDeathTest, TheFunctionThatCallsTheCLibraryIsNamed) {
  EXPECT_EXIT(
      {
        char target[64];
        std::memcpy(target, split_memory(64), sizeof target);
        std::_Exit(target[0]);
      },
      testing::ExitedWithCode(kFaultCode), "in .*TheFunctionThatCalls.* of .*nccl_cuda_test: ");
}

TEST_F(SplitMemoryDeathTest, TheRuntimeCopiesAndFrees) {
  EXPECT_EXIT(
      {
        char* const device = split_memory(100);
        char result[100];
        std::memset(result, 7, sizeof result);
        if (cudaMemcpy(result, device, 100, 2) != kSuccess || result[99] != 0) std::_Exit(3);
        cudaMemset(device, 5, 50);
        cudaMemcpy(result, device, 100, 2);
        const char* const second = static_cast<const char*>(plugfest_cuda_accessible(device + 49));
        if (result[49] != 5 || result[50] != 0 || *second != 5) std::_Exit(4);
        void* other = nullptr;
        cudaMalloc(&other, 1);
        if (other == device || cudaFree(device) != kSuccess || cudaFree(device) != kInvalidValue) std::_Exit(5);
        if (split_memory(100) != device) std::_Exit(6);
        cudaMemcpy(result, device, 100, 2);
        std::_Exit(result[0]);
      },
      testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace plugfest::nccl::cuda
