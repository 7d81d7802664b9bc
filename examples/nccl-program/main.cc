// Runs collectives of NCCL and checks every element of their results. Start one process for each rank.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "check.h"
#include "rendezvous.h"

namespace {

// The element that a rank contributes. Sums of all ranks are exact in float.
float element(int rank, std::size_t index) { return static_cast<float>((index * 7 + rank * 13) % 1024); }

// A sum of all bytes that depends on their order (FNV-1a).
std::uint64_t checksum(const std::vector<float>& values) {
  std::uint64_t sum = 14695981039346656037u;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (std::size_t i = 0; i < values.size() * sizeof(float); ++i) sum = (sum ^ bytes[i]) * 1099511628211u;
  return sum;
}

class Job {
 public:
  explicit Job(const Launch& launch) : launch_(launch) {
    CHECK_CUDA(cudaSetDevice(launch.local_rank));
    CHECK_CUDA(cudaStreamCreate(&stream_));
    CHECK_NCCL(ncclCommInitRank(&comm_, launch.ranks, exchange_id(launch), launch.rank));
  }
  ~Job() {
    CHECK_NCCL(ncclCommDestroy(comm_));
    CHECK_CUDA(cudaStreamDestroy(stream_));
  }

  // Runs an operation on `inputs` and `outputs` elements; `expected` is the result at an index.
  void run(const char* name, std::size_t inputs, std::size_t outputs,
           const std::function<ncclResult_t(const float*, float*)>& operation,
           const std::function<float(std::size_t)>& expected) {
    std::vector<float> values(inputs), result(outputs);
    for (std::size_t i = 0; i < inputs; ++i) values[i] = element(launch_.rank, i);
    float *input = nullptr, *output = nullptr;
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&input), inputs * sizeof(float)));
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&output), outputs * sizeof(float)));
    CHECK_CUDA(cudaMemcpyAsync(input, values.data(), inputs * sizeof(float), cudaMemcpyHostToDevice, stream_));
    CHECK_CUDA(cudaMemsetAsync(output, 0xff, outputs * sizeof(float), stream_));
    CHECK_NCCL(operation(input, output));
    CHECK_CUDA(cudaMemcpyAsync(result.data(), output, outputs * sizeof(float), cudaMemcpyDeviceToHost, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    CHECK_CUDA(cudaFree(input));
    CHECK_CUDA(cudaFree(output));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < outputs; ++i) wrong += result[i] != expected(i);
    std::printf("%s of %zu elements: %zu wrong, checksum %016llx\n", name, inputs, wrong,
                static_cast<unsigned long long>(checksum(result)));
    failed_ = failed_ || wrong != 0;
  }

  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  bool failed() const { return failed_; }

 private:
  const Launch launch_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  bool failed_ = false;
};

}  // namespace

int main() {
  const Launch launch = read_launch();
  const int rank = launch.rank, ranks = launch.ranks, next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  Job job(launch);
  const auto sum = [&](std::size_t i) {
    float total = 0;
    for (int r = 0; r < ranks; ++r) total += element(r, i);
    return total;
  };
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 18}) {
    job.run(
        "allreduce", count, count,
        [&](const float* from, float* to) {
          return ncclAllReduce(from, to, count, ncclFloat, ncclSum, job.comm(), job.stream());
        },
        sum);
    job.run(
        "allgather", count, count * ranks,
        [&](const float* from, float* to) {
          return ncclAllGather(from, to, count, ncclFloat, job.comm(), job.stream());
        },
        [&](std::size_t i) { return element(static_cast<int>(i / count), i % count); });
    job.run(
        "reducescatter", count * ranks, count,
        [&](const float* from, float* to) {
          return ncclReduceScatter(from, to, count, ncclFloat, ncclSum, job.comm(), job.stream());
        },
        [&](std::size_t i) { return sum(rank * count + i); });
    job.run(
        "broadcast", count, count,
        [&](const float* from, float* to) {
          return ncclBroadcast(from, to, count, ncclFloat, 0, job.comm(), job.stream());
        },
        [&](std::size_t i) { return element(0, i); });
    job.run(
        "sendrecv", count, count,
        [&](const float* from, float* to) {
          CHECK_NCCL(ncclGroupStart());
          CHECK_NCCL(ncclSend(from, count, ncclFloat, next, job.comm(), job.stream()));
          CHECK_NCCL(ncclRecv(to, count, ncclFloat, previous, job.comm(), job.stream()));
          return ncclGroupEnd();
        },
        [&](std::size_t i) { return element(previous, i); });
  }
  return job.failed() ? 1 : 0;
}
