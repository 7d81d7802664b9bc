// The host's part of the examples: a communicator, windows of symmetric memory, a device communicator, and a check of
// every element of the result. Start one process for each rank.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "check.h"
#include "rendezvous.h"

/// Blocks of each kernel, and threads of each block.
constexpr int kBlocks = 16, kThreads = 512;

/// One rank: the communicator, and memory that all ranks can reach.
class Job {
 public:
  explicit Job(const ncclDevCommRequirements& requirements) : launch_(read_launch()) {
    CHECK_CUDA(cudaSetDevice(launch_.local_rank));
    CHECK_CUDA(cudaStreamCreate(&stream_));
    CHECK_NCCL(ncclCommInitRank(&comm_, launch_.ranks, exchange_id(launch_), launch_.rank));
    CHECK_NCCL(ncclDevCommCreate(comm_, &requirements, &device_));
  }
  ~Job() {
    CHECK_NCCL(ncclDevCommDestroy(comm_, &device_));
    for (const Window& window : windows_) {
      CHECK_NCCL(ncclCommWindowDeregister(comm_, window.handle));
      CHECK_NCCL(ncclMemFree(window.memory));
    }
    CHECK_NCCL(ncclCommDestroy(comm_));
    CHECK_CUDA(cudaStreamDestroy(stream_));
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// A window with `values`.
  ncclWindow_t window(const std::vector<float>& values) {
    Window window;
    const std::size_t bytes = values.size() * sizeof(float);
    CHECK_NCCL(ncclMemAlloc(&window.memory, bytes));
    CHECK_CUDA(cudaMemcpy(window.memory, values.data(), bytes, cudaMemcpyHostToDevice));
    CHECK_NCCL(ncclCommWindowRegister(comm_, window.memory, bytes, &window.handle, NCCL_WIN_COLL_SYMMETRIC));
    windows_.push_back(window);
    return window.handle;
  }

  /// Waits for the kernel, and compares `count` elements of the last window with `expected`. Returns main()'s result.
  int check(const char* name, std::size_t count, const std::function<float(std::size_t)>& expected) {
    std::vector<float> values(count);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    CHECK_CUDA(cudaMemcpy(values.data(), windows_.back().memory, count * sizeof(float), cudaMemcpyDeviceToHost));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += values[i] != expected(i);
    std::printf("rank %d: %s of %zu elements: %zu wrong\n", launch_.rank, name, count, wrong);
    return wrong == 0 ? 0 : 1;
  }

  int rank() const { return launch_.rank; }
  int ranks() const { return launch_.ranks; }
  const ncclDevComm& device() const { return device_; }
  cudaStream_t stream() const { return stream_; }

 private:
  struct Window {
    void* memory = nullptr;
    ncclWindow_t handle = nullptr;
  };

  const Launch launch_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  ncclDevComm device_;
  std::vector<Window> windows_;
};

/// The element that a rank contributes. Sums of all ranks are exact in float.
inline float element(int rank, std::size_t index) { return static_cast<float>((index * 7 + rank * 13) % 1024); }

/// The elements of a rank.
inline std::vector<float> elements(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = element(rank, i);
  return values;
}

/// The sum of the elements of all ranks at an index.
inline float sum_of_elements(int ranks, std::size_t index) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += element(rank, index);
  return sum;
}
