// Kernels with one mistake each, which a run detects. The first argument names the mistake. With "none" and
// "no-gin-mistake" the kernels are correct.
#include <csignal>
#include <cstring>

#include "job.h"

namespace {

constexpr std::size_t kPart = std::size_t{1} << 12;

}  // namespace

// Each rank doubles its inputs. Then it adds up its part of the elements of all ranks, and stores the sums to all.
template <bool first_barrier, bool last_barrier>
__global__ void allreduce(ncclDevComm comm, ncclWindow_t inputs, ncclWindow_t outputs, cuda::memory_order first_order,
                          cuda::memory_order last_order) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x);
  const size_t count = kPart * comm.lsaSize, step = blockDim.x * gridDim.x;
  const size_t first = threadIdx.x + blockIdx.x * blockDim.x;
  float* const own = static_cast<float*>(ncclGetLsaPointer(inputs, 0, comm.lsaRank));
  for (size_t i = first; i < count; i += step) own[i] *= 2;
  if (first_barrier) barrier.sync(ncclCoopCta(), first_order);
  for (size_t i = first; i < count; i += step) {
    if (i / step % comm.lsaSize != static_cast<size_t>(comm.lsaRank)) continue;
    float sum = 0;
    for (int peer = 0; peer < comm.lsaSize; ++peer)
      sum += static_cast<const float*>(ncclGetLsaPointer(inputs, 0, peer))[i];
    for (int peer = 0; peer < comm.lsaSize; ++peer)
      static_cast<float*>(ncclGetLsaPointer(outputs, 0, peer))[i] = sum;
  }
  if (last_barrier) barrier.sync(ncclCoopCta(), last_order);
}

// The halves of a block wait at different barriers.
__global__ void different_barriers() {
  if (threadIdx.x < blockDim.x / 2) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

// Only one rank reaches the barrier.
__global__ void barrier_of_one_rank(ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x);
  if (comm.rank == 0) barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

// The even lanes of a warp wait for the odd ones, which are at another place.
__global__ void wrong_mask() {
  if (threadIdx.x % 2 == 0) __shfl_xor_sync(0xffffffff, 1, 1);
  __syncthreads();
}

// An ordinary instruction, where only multimem instructions may be used.
__global__ void ordinary_multicast(ncclDevComm comm, ncclWindow_t inputs) {
  if (threadIdx.x == 0) *static_cast<float*>(ncclGetLsaMultimemPointer(inputs, 0, comm)) = 1;
}

// Each rank puts a part of its inputs into the buffer of each rank, overwrites its inputs, and copies its buffer to its
// outputs.
template <bool wait, bool flush_before_reuse>
__global__ void alltoall(ncclDevComm comm, ncclWindow_t inputs, ncclWindow_t buffer, ncclWindow_t outputs,
                         ncclGinSignal_t signal, uint64_t signals, size_t offset) {
  const ncclGin gin(comm, 0);
  const uint64_t before = gin.readSignal(signal);
  ncclGinBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), gin, ncclTeamWorld(comm), comm.railGinBarrier, blockIdx.x);
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed, ncclGinFenceLevel::Relaxed);
  const size_t bytes = kPart * sizeof(float);
  for (int peer = threadIdx.x; peer < comm.nRanks; peer += blockDim.x)
    gin.put(ncclTeamWorld(comm), peer, buffer, offset + comm.rank * bytes, inputs, peer * bytes, bytes,
            ncclGin_SignalInc{signal});
  const auto memory = [](ncclWindow_t window) { return static_cast<float*>(ncclGetLocalPointer(window, 0)); };
  const size_t count = kPart * comm.nRanks;
  if (wait) {
    if (flush_before_reuse) gin.flush(ncclCoopCta());
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) memory(inputs)[i] = -1;
    gin.waitSignal(ncclCoopCta(), signal, before + signals);
  }
  for (size_t i = threadIdx.x; i < count; i += blockDim.x) memory(outputs)[i] = memory(buffer)[i];
  gin.flush(ncclCoopCta());
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed, ncclGinFenceLevel::Relaxed);
}

// Rank 0 puts data into the memory of rank 1, and tells rank 2, which tells rank 1. A signal follows only those puts
// that its own sender made to the same rank.
__global__ void relayed_signal(ncclDevComm comm, ncclWindow_t inputs, ncclWindow_t buffer, ncclWindow_t outputs) {
  constexpr size_t kBytes = 4096;
  const ncclGin gin(comm, 0);
  const uint64_t before = gin.readSignal(0);
  ncclGinBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), gin, ncclTeamWorld(comm), comm.railGinBarrier, blockIdx.x);
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed, ncclGinFenceLevel::Relaxed);
  const size_t count = kPart * comm.nRanks;
  if (comm.rank == 0 && threadIdx.x == 0) {
    for (size_t at = 0; at < count * sizeof(float); at += kBytes)
      gin.put(ncclTeamWorld(comm), 1, buffer, at, inputs, at, kBytes);
    gin.signal(ncclTeamWorld(comm), 2, ncclGin_SignalInc{0});
  }
  if (comm.rank == 1 || comm.rank == 2) gin.waitSignal(ncclCoopCta(), 0, before + 1);
  if (comm.rank == 2 && threadIdx.x == 0) gin.signal(ncclTeamWorld(comm), 1, ncclGin_SignalInc{0});
  const auto memory = [](ncclWindow_t window) { return static_cast<float*>(ncclGetLocalPointer(window, 0)); };
  for (size_t i = threadIdx.x; i < count; i += blockDim.x) memory(outputs)[i] = memory(buffer)[i];
  gin.flush(ncclCoopCta());
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed, ncclGinFenceLevel::Relaxed);
}

namespace {

int run_gin(const char* mistake) {
  ncclDevCommRequirements requirements{};
  requirements.railGinBarrierCount = 1;
  requirements.ginSignalCount = 1;
  Job job(requirements);
  const std::size_t count = kPart * job.ranks();
  const ncclWindow_t inputs = job.window(elements(job.rank(), count));
  const ncclWindow_t buffer = job.window(std::vector<float>(count)), outputs = job.window(std::vector<float>(count));
  if (std::strcmp(mistake, "relayed-signal") == 0) {
    relayed_signal<<<1, kThreads, 0, job.stream()>>>(job.device(), inputs, buffer, outputs);
    return job.check(mistake, count, [&](std::size_t i) { return job.rank() == 1 ? element(0, i) : 0; });
  }
  const uint64_t signals = job.ranks() + (std::strcmp(mistake, "too-many-signals") == 0 ? 1 : 0);
  const auto kernel = std::strcmp(mistake, "no-wait") == 0    ? alltoall<false, true>
                      : std::strcmp(mistake, "no-flush") == 0 ? alltoall<true, false>
                                                              : alltoall<true, true>;
  const ncclGinSignal_t signal = std::strcmp(mistake, "signal-outside") == 0 ? 1'000'000 : 0;
  const size_t offset = std::strcmp(mistake, "put-outside") == 0 ? size_t{1} << 30 : 0;
  if (std::strcmp(mistake, "dead-rank") == 0 && job.rank() == 1) std::raise(SIGKILL);
  kernel<<<1, kThreads, 0, job.stream()>>>(job.device(), inputs, buffer, outputs, signal, signals, offset);
  return job.check(mistake, count,
                   [&](std::size_t i) { return element(static_cast<int>(i / kPart), job.rank() * kPart + i % kPart); });
}

int run_lsa(const char* mistake) {
  const auto is = [&](const char* name) { return std::strcmp(mistake, name) == 0; };
  ncclDevCommRequirements requirements{};
  requirements.lsaBarrierCount = kBlocks;
  requirements.lsaMultimem = is("ordinary-multicast");
  Job job(requirements);
  const std::size_t count = kPart * job.ranks();
  const ncclWindow_t inputs = job.window(elements(job.rank(), count));
  const ncclWindow_t outputs = job.window(std::vector<float>(count));
  const ncclDevComm& comm = job.device();
  if (is("different-barriers")) {
    different_barriers<<<kBlocks, kThreads, 0, job.stream()>>>();
  } else if (is("barrier-of-one-rank")) {
    barrier_of_one_rank<<<kBlocks, kThreads, 0, job.stream()>>>(comm);
  } else if (is("wrong-mask")) {
    wrong_mask<<<kBlocks, kThreads, 0, job.stream()>>>();
  } else if (is("ordinary-multicast")) {
    ordinary_multicast<<<kBlocks, kThreads, 0, job.stream()>>>(comm, inputs);
  } else {
    const auto kernel = is("no-first-barrier")  ? allreduce<false, true>
                        : is("no-last-barrier") ? allreduce<true, false>
                                                : allreduce<true, true>;
    const auto order = [&](const char* name) { return is(name) ? cuda::memory_order_relaxed : cuda::memory_order_acq_rel; };
    kernel<<<kBlocks, kThreads, 0, job.stream()>>>(comm, inputs, outputs, order("relaxed-first-barrier"),
                                                   order("relaxed-last-barrier"));
  }
  return job.check(mistake, count, [&](std::size_t i) { return 2 * sum_of_elements(job.ranks(), i); });
}

}  // namespace

int main(int argc, char** argv) {
  const char* const mistake = argc == 2 ? argv[1] : "none";
  for (const char* const name : {"no-gin-mistake", "no-wait", "no-flush", "relayed-signal", "too-many-signals",
                                 "put-outside", "signal-outside", "dead-rank"})
    if (std::strcmp(mistake, name) == 0) return run_gin(mistake);
  return run_lsa(mistake);
}
