// An allreduce by multimem instructions: NVLink switches add up loads from all ranks, and repeat stores to all.
#include "job.h"

__device__ float load_sum(const float* address) {
  float sum;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(sum) : "l"(address) : "memory");
  return sum;
}

__device__ void store_to_all(float* address, float value) {
  asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;" : : "l"(address), "f"(value) : "memory");
}

// Each rank adds up and stores its part of the elements, in place.
__global__ void allreduce(ncclDevComm comm, ncclWindow_t window, size_t count) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x, /*multimem=*/true);
  // All ranks have written their inputs.
  barrier.sync(ncclCoopCta(), cuda::memory_order_acquire);
  float* const elements = static_cast<float*>(ncclGetLsaMultimemPointer(window, 0, comm));
  const size_t first = threadIdx.x + size_t{blockDim.x} * (blockIdx.x + size_t{gridDim.x} * comm.lsaRank);
  const size_t step = size_t{blockDim.x} * gridDim.x * comm.lsaSize;
  for (size_t i = first; i < count; i += step) store_to_all(elements + i, load_sum(elements + i));
  // All ranks have stored their sums.
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

int main() {
  ncclDevCommRequirements requirements{};
  requirements.lsaBarrierCount = kBlocks;
  requirements.lsaMultimem = true;
  Job job(requirements);
  constexpr std::size_t kCount = std::size_t{1} << 20;
  const ncclWindow_t window = job.window(elements(job.rank(), kCount));
  allreduce<<<kBlocks, kThreads, 0, job.stream()>>>(job.device(), window, kCount);
  return job.check("allreduce", kCount, [&](std::size_t i) { return sum_of_elements(job.ranks(), i); });
}
