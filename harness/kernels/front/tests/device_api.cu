// One kernel for each part of NCCL's device API that 2.28.9 has. Compiled only: it needs peers to run.
#include <nccl.h>
#include <nccl_device.h>

__global__ void lsa(ncclWindow_t from, ncclWindow_t to, size_t count, ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamLsa(comm), comm.lsaBarrier, blockIdx.x);
  barrier.sync(ncclCoopCta(), cuda::memory_order_acquire);
  for (size_t i = threadIdx.x; i < count; i += blockDim.x)
    for (int peer = 0; peer < comm.lsaSize; ++peer)
      static_cast<float*>(ncclGetLsaPointer(to, 0, peer))[i] = static_cast<float*>(ncclGetLocalPointer(from, 0))[i];
  barrier.sync(ncclCoopCta(), cuda::memory_order_release);
}

__global__ void multimem(ncclWindow_t window, ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x, true);
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
  float* const everywhere = static_cast<float*>(ncclGetLsaMultimemPointer(window, 0, comm)) + threadIdx.x;
  float sum;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(sum) : "l"(everywhere) : "memory");
  asm volatile("multimem.st.global.f32 [%0], %1;" ::"l"(everywhere), "f"(sum) : "memory");
}

__global__ void gin(ncclWindow_t from, ncclWindow_t to, size_t bytes, ncclDevComm comm) {
  ncclGin net(comm, 0);
  const uint64_t before = net.readSignal(0);
  ncclTeam world = ncclTeamWorld(comm);
  for (int peer = threadIdx.x; peer < world.nRanks; peer += blockDim.x)
    net.put(world, peer, to, comm.rank * bytes, from, peer * bytes, bytes, ncclGin_SignalInc{0});
  net.putValue(world, 0, to, 0, 3u, ncclGin_SignalAdd{1, 2}, ncclCoopWarp());
  net.waitSignal(ncclCoopCta(), 0, before + world.nRanks);
  net.increaseSignalShadow(0, world.nRanks);
  net.flush(ncclCoopCta());
  ncclGinBarrierSession<ncclCoopCta> rails(ncclCoopCta(), net, ncclTeamTagRail(), blockIdx.x);
  rails.sync(ncclCoopCta(), cuda::memory_order_relaxed, ncclGinFenceLevel::Relaxed);
}

__global__ void all_to_all(ncclDevComm comm, ncclLLA2AHandle handle, double* values) {
  ncclLLA2ASession<ncclCoopCta> session(ncclCoopCta(), comm, ncclTeamLsa(comm), handle, blockIdx.x, 1024);
  session.bcast(comm.lsaRank, values[threadIdx.x]);
  values[threadIdx.x] = session.recv<double>(threadIdx.x);
  session.endEpoch(ncclCoopCta());
}

int main() {
  ncclDevComm comm = {};
  lsa<<<16, 512>>>(nullptr, nullptr, 0, comm);
  multimem<<<16, 512>>>(nullptr, comm);
  gin<<<1, 32>>>(nullptr, nullptr, 0, comm);
  all_to_all<<<1, 32>>>(comm, {}, nullptr);
}
