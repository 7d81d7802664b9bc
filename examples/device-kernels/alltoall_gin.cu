// An alltoall over the network (GIN): each rank puts a part of its memory into the memory of each other rank.
#include "job.h"

// One block: its threads share the ranks among them. Each put adds 1 to a signal of its target, after its payload.
__global__ void alltoall(ncclDevComm comm, ncclWindow_t inputs, ncclWindow_t outputs, size_t bytes) {
  constexpr ncclGinSignal_t kSignal = 0;
  const ncclGin gin(comm, /*contextIndex=*/0);
  // Read it before the barrier: after that, puts of other ranks may arrive.
  const uint64_t before = gin.readSignal(kSignal);
  ncclGinBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), gin, ncclTeamWorld(comm), comm.railGinBarrier, blockIdx.x);
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed, ncclGinFenceLevel::Relaxed);
  for (int peer = threadIdx.x; peer < comm.nRanks; peer += blockDim.x)
    gin.put(ncclTeamWorld(comm), peer, outputs, comm.rank * bytes, inputs, peer * bytes, bytes,
            ncclGin_SignalInc{kSignal});
  // All parts of the output are there, and the input may be written again.
  gin.waitSignal(ncclCoopCta(), kSignal, before + comm.nRanks);
  gin.flush(ncclCoopCta());
}

int main() {
  ncclDevCommRequirements requirements{};
  requirements.railGinBarrierCount = 1;
  requirements.ginSignalCount = 1;
  Job job(requirements);
  constexpr std::size_t kPart = std::size_t{1} << 14;
  const std::size_t count = kPart * job.ranks();
  const ncclWindow_t inputs = job.window(elements(job.rank(), count));
  const ncclWindow_t outputs = job.window(std::vector<float>(count));
  alltoall<<<1, kThreads, 0, job.stream()>>>(job.device(), inputs, outputs, kPart * sizeof(float));
  return job.check("alltoall", count,
                   [&](std::size_t i) { return element(static_cast<int>(i / kPart), job.rank() * kPart + i % kPart); });
}
