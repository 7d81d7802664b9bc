#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "harness/kernels/include/plugfest_kernel.h"
#include "harness/nccl/cuda/memory.h"
#include "harness/nccl/cuda/runtime.h"
#include "test_paths.h"

namespace plugfest::nccl::cuda {

namespace {

class StreamTest : public testing::Test {
 protected:
  void* stream(unsigned flags = 1) {
    void* handle = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&handle, flags), kSuccess);
    streams_.push_back(handle);
    return handle;
  }
  void TearDown() override {
    for (void* const handle : streams_) EXPECT_EQ(cudaStreamDestroy(handle), kSuccess);
  }

 private:
  std::vector<void*> streams_;
};

TEST_F(StreamTest, DoesWorkInOrder) {
  std::vector<int> order;
  void* const one = stream();
  for (int i = 0; i < 100; ++i) enqueue(one, [&, i] { order.push_back(i); });
  EXPECT_EQ(cudaStreamSynchronize(one), kSuccess);
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(StreamTest, AnEventIsReachedWhenTheWorkBeforeItIsDone) {
  void* const one = stream();
  void* event = nullptr;
  EXPECT_EQ(cudaEventCreate(&event), kSuccess);
  EXPECT_EQ(cudaEventQuery(event), kSuccess) << "an event that was never recorded";
  std::promise<void> release;
  enqueue(one, [&] { release.get_future().wait(); });
  EXPECT_EQ(cudaEventRecord(event, one), kSuccess);
  EXPECT_EQ(cudaEventQuery(event), kNotReady);
  EXPECT_EQ(cudaStreamQuery(one), kNotReady);
  release.set_value();
  EXPECT_EQ(cudaEventSynchronize(event), kSuccess);
  EXPECT_EQ(cudaEventQuery(event), kSuccess);
  EXPECT_EQ(cudaEventDestroy(event), kSuccess);
}

TEST_F(StreamTest, AStreamWaitsForAnEventOfAnother) {
  void *const one = stream(), *const two = stream();
  void* event = nullptr;
  cudaEventCreate(&event);
  std::promise<void> release;
  int seen = 0, value = 0;
  enqueue(one, [&] {
    release.get_future().wait();
    value = 1;
  });
  cudaEventRecord(event, one);
  EXPECT_EQ(cudaStreamWaitEvent(two, event, 0), kSuccess);
  cudaEventDestroy(event);
  enqueue(two, [&] { seen = value; });
  release.set_value();
  cudaStreamSynchronize(two);
  EXPECT_EQ(seen, 1);
}

TEST_F(StreamTest, TheDefaultStreamWaitsForBlockingStreamsOnly) {
  void *const blocking = stream(0), *const other = stream(1);
  std::promise<void> release, release_other;
  int value = 0, seen = 0;
  enqueue(blocking, [&] {
    release.get_future().wait();
    value = 1;
  });
  enqueue(other, [&] { release_other.get_future().wait(); });
  enqueue(nullptr, [&] { seen = value; });
  release.set_value();
  EXPECT_EQ(cudaStreamSynchronize(nullptr), kSuccess);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(cudaStreamQuery(other), kNotReady);
  release_other.set_value();
  EXPECT_EQ(cudaStreamSynchronize(other), kSuccess);  // its function uses the variables above
}

TEST_F(StreamTest, AHandleThatIsNoStreamIsRefused) {
  int variable = 0;
  EXPECT_EQ(cudaStreamSynchronize(&variable), kInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(&variable), kInvalidResourceHandle);
}

TEST_F(StreamTest, ACopyFromPageableMemoryReadsItBeforeTheCallReturns) {
  void* const one = stream();
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 8), kSuccess);
  std::promise<void> release;
  enqueue(one, [&] { release.get_future().wait(); });
  int source = 5;
  EXPECT_EQ(cudaMemcpyAsync(device, &source, sizeof(source), 4, one), kSuccess);
  source = 6;
  release.set_value();
  int result = 0;
  EXPECT_EQ(cudaMemcpyAsync(&result, device, sizeof(result), 4, one), kSuccess);
  EXPECT_EQ(result, 5) << "a copy to pageable memory is complete when the call returns";
  EXPECT_EQ(cudaFree(device), kSuccess);
}

TEST_F(StreamTest, AHostFunctionRunsInOrder) {
  void* const one = stream();
  int value = 0;
  enqueue(one, [&] { value = 4; });
  EXPECT_EQ(cudaLaunchHostFunc(
                one, [](void* number) { ++*static_cast<int*>(number); }, &value),
            kSuccess);
  cudaStreamSynchronize(one);
  EXPECT_EQ(value, 5);
}

void add(int value, int* sum) {
  if (plugfest_kernel_thread_index()->x == 0) *sum = *sum * 10 + value;
}

TEST_F(StreamTest, RunsKernelsInOrder) {
  int sum = 0;
  void* const one = stream();
  for (int i = 1; i < 5; ++i) EXPECT_EQ(kernels::launch("add", add, {1, 1, 1}, {32, 1, 1}, 0, one, i, &sum), kSuccess);
  EXPECT_EQ(cudaStreamSynchronize(one), kSuccess);
  EXPECT_EQ(sum, 1234);
}

TEST_F(StreamTest, RefusesKernelsThatNoGpuRuns) {
  constexpr int kInvalidConfiguration = 9;
  int sum = 0;
  EXPECT_EQ(kernels::launch("add", add, {1, 1, 1}, {2048, 1, 1}, 0, stream(), 1, &sum), kInvalidConfiguration);
  EXPECT_EQ(cudaPeekAtLastError(), kInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), kInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), kSuccess);
}

void write_to(int* address) { *address = 1; }

[[gnu::noinline]] int depth(volatile int* rest) {
  volatile char frame[4096] = {};
  const int left = *rest - 1;
  *rest = left;
  return left == 0 ? 0 : depth(rest) + frame[left % 4096];
}

TEST(FaultDeathTest, NamesTheThreadAndTheLineOfAKernel) {
  const auto run = [](auto kernel, auto argument) {
    kernels::launch("faulty", kernel, {1, 1, 1}, {2, 1, 1}, 0, nullptr, argument);
    cudaDeviceSynchronize();
  };
  EXPECT_EXIT(run(write_to, reinterpret_cast<int*>(0x1000)), testing::ExitedWithCode(kFaultCode),
              "kernel faulty, block \\(0,0,0\\), thread \\(0,0,0\\): an access to an address without memory: address "
              "0x1000\n    in .*write_to.* at .*cuda_test.cc:[0-9]+\n");
  int rest = 1000;
  EXPECT_EXIT(run(
                  +[](int* number) { depth(number); }, &rest),
              testing::ExitedWithCode(kFaultCode),
              "kernel faulty, .*: its stack of 256 KiB is full\n    in .*depth.* at .*cuda_test.cc:[0-9]+\n");
}

TEST(Memory, TellsDeviceHostAndOtherMemoryApart) {
  void *device = nullptr, *host = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 100), kSuccess);
  ASSERT_EQ(cudaHostAlloc(&host, 100, 0), kSuccess);
  PointerAttributes attributes{};
  int variable = 0;
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, static_cast<char*>(device) + 99), kSuccess);
  EXPECT_EQ(attributes.type, 2);
  cudaPointerGetAttributes(&attributes, host);
  EXPECT_EQ(attributes.type, 1);
  cudaPointerGetAttributes(&attributes, &variable);
  EXPECT_EQ(attributes.type, 0);
  EXPECT_EQ(cudaFree(device), kSuccess);
  EXPECT_EQ(cudaFree(device), kInvalidValue) << "freed twice";
  EXPECT_EQ(cudaFreeHost(host), kSuccess);
  EXPECT_EQ(cudaFree(nullptr), kSuccess);
}

TEST(Device, HasAPciAddressAndAUuidForEachDevice) {
  std::array<char, 20> text{};
  EXPECT_EQ(cudaDeviceGetPCIBusId(text.data(), 20, 0), kSuccess);
  EXPECT_STREQ(text.data(), "0000:01:00.0");
  int device = 9;
  EXPECT_EQ(cudaDeviceGetByPCIBusId(&device, text.data()), kSuccess);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cudaSetDevice(1), kInvalidDevice);
  std::array<std::uint64_t, 2> uuid{};
  EXPECT_EQ(cuDeviceGetUuid(uuid.data(), 0), kSuccess);
  EXPECT_NE(uuid[0], 0);
  EXPECT_EQ(cuDeviceGetUuid_v2(uuid.data(), 1), kInvalidDevice);
}

TEST(DeviceDeathTest, AnAttributeWithoutStandInEndsTheProcess) {
  int value = 0;
  EXPECT_EXIT(cudaDeviceGetAttribute(&value, 12345, 0), testing::ExitedWithCode(2),
              "^plugfest-nccl: device attribute 12345: no stand-in\n$");
}

// Looks functions up as plugins do.
template <typename Function>
Function* function_of(const char* library, const char* name) {
  void* const handle = dlopen((std::string(PLUGFEST_NCCL_LIBRARIES) + "/" + library).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  return handle == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle, name));
}

TEST(DriverDeathTest, ARuntimeInAPluginEndsTheProcess) {
  auto* const get_table = function_of<int(const void**, const void*)>("libcuda.so.1", "cuGetExportTable");
  ASSERT_NE(get_table, nullptr);
  EXPECT_EXIT(get_table(nullptr, nullptr), testing::ExitedWithCode(2),
              "^plugfest-nccl: a CUDA runtime that is linked statically into a plugin, a library or a stripped "
              "program: link it with the dynamic runtime \\(nvcc -cudart shared\\), or do not strip the program\n$");
}

TEST(Driver, HasTheFunctionsThatPluginsLookUp) {
  const char* const kNames[] = {"cuCtxGetCurrent",
                                "cuCtxGetDevice",
                                "cuCtxSetCurrent",
                                "cuDeviceGetAttribute",
                                "cuDeviceGetCount",
                                "cuDriverGetVersion",
                                "cuFlushGPUDirectRDMAWrites",
                                "cuGetProcAddress",
                                "cuGetProcAddress_v2",
                                "cuPointerGetAttributes",
                                "cuPointerGetAttribute",
                                "cuMemGetHandleForAddressRange"};
  for (const char* const library : {"libcuda.so", "libcuda.so.1"})
    for (const char* const name : kNames) EXPECT_NE(function_of<int()>(library, name), nullptr) << library << name;
  EXPECT_NE(function_of<int()>("libcudart.so", "cudaGetDriverEntryPointByVersion"), nullptr);
  const auto look_up = function_of<int(const char*, void**, int, unsigned long long)>("libcuda.so", "cuGetProcAddress");
  for (const char* const name : {"cuFlushGPUDirectRDMAWrites", "cuMemCreate", "cuMemcpyHtoDAsync", "cuStreamDestroy",
                                 "cuMemGetHandleForAddressRange", "cuMemRetainAllocationHandle"}) {
    void* function = nullptr;
    EXPECT_EQ(look_up(name, &function, 12000, 0), kSuccess);
    EXPECT_NE(function, nullptr) << name;
  }
  EXPECT_EQ(cuFlushGPUDirectRDMAWrites(0, 100), kSuccess);
  int descriptor = -1;
  EXPECT_EQ(cuMemGetHandleForAddressRange(&descriptor, 4096, 4096, 1, 0), kNotSupported);
}

TEST(Driver, AttributesOfAPointerThatItDoesNotKnowAreZero) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 100), kSuccess);
  unsigned type = 7;
  int device = 7;
  const int attributes[] = {2, 9};
  void* values[] = {&type, &device};
  EXPECT_EQ(cuPointerGetAttributes(2, attributes, values, reinterpret_cast<unsigned long long>(memory)), kSuccess);
  EXPECT_EQ(type, 2u) << "device memory";
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cuPointerGetAttributes(2, attributes, values, reinterpret_cast<unsigned long long>(&type)), kSuccess);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(cuPointerGetAttribute(&type, 2, reinterpret_cast<unsigned long long>(&type)), kInvalidValue);
  EXPECT_EQ(cudaFree(memory), kSuccess);
}

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
        std::memcpy(target, split_memory(64), sizeof(target));
        std::_Exit(target[0]);
      },
      testing::ExitedWithCode(kFaultCode), "in .*TheFunctionThatCalls.* of .*nccl_cuda_test: ");
}

TEST_F(SplitMemoryDeathTest, TheRuntimeCopiesAndFrees) {
  EXPECT_EXIT(
      {
        char* const device = split_memory(100);
        char result[100];
        std::memset(result, 7, sizeof(result));
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
