// An allreduce by loads from, and stores to, the memory of all ranks (LSA). All ranks are in one NVLink domain.
#include "job.h"

// Each rank sums up its part of the elements, and stores the sums to all ranks.
__global__ void allreduce(ncclDevComm comm, ncclWindow_t inputs, ncclWindow_t outputs, size_t count) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x);
  // All ranks have written their inputs.
  barrier.sync(ncclCoopCta(), cuda::memory_order_acquire);
  const size_t first = threadIdx.x + size_t{blockDim.x} * (blockIdx.x + size_t{gridDim.x} * comm.lsaRank);
  const size_t step = size_t{blockDim.x} * gridDim.x * comm.lsaSize;
  for (size_t i = first; i < count; i += step) {
    float sum = 0;
    for (int peer = 0; peer < comm.lsaSize; ++peer)
      sum += static_cast<const float*>(ncclGetLsaPointer(inputs, 0, peer))[i];
    for (int peer = 0; peer < comm.lsaSize; ++peer)
      static_cast<float*>(ncclGetLsaPointer(outputs, 0, peer))[i] = sum;
  }
  // All ranks have stored their sums.
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

int main() {
  ncclDevCommRequirements requirements{};
  requirements.lsaBarrierCount = kBlocks;
  Job job(requirements);
  constexpr std::size_t kCount = std::size_t{1} << 20;
  const ncclWindow_t inputs = job.window(elements(job.rank(), kCount));
  const ncclWindow_t outputs = job.window(std::vector<float>(kCount));
  allreduce<<<kBlocks, kThreads, 0, job.stream()>>>(job.device(), inputs, outputs, kCount);
  return job.check("allreduce", kCount, [&](std::size_t i) { return sum_of_elements(job.ranks(), i); });
}
