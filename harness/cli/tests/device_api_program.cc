// A rank of device_api_test.cc: does on the CPU what kernels do with the device API of NCCL 2.28.9, without its device
// code. Its one argument says what.
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <nccl_device.h>
#include <nccl_device/gin/proxy/gin_proxy_device_host_common.h>
#include <sched.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "rendezvous.h"

extern "C" int plugfest_cuda_multicast_members(const void* address, std::size_t bytes, void** members, int capacity);

namespace {

#define CHECK(call)                                         \
  if (const int code = static_cast<int>(call); code != 0) { \
    std::fprintf(stderr, "%s: code %d\n", #call, code);     \
    std::exit(1);                                           \
  }

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

constexpr std::size_t kWords = 4096;

std::uint64_t word(int rank, std::size_t index) { return static_cast<std::uint64_t>(rank) * 1'000'003 + index; }

// ncclGetLsaPointer.
char* lsa_pointer(const ncclWindow_vidmem& window, int peer) {
  return window.lsaFlatBase + (static_cast<std::uint64_t>(window.stride4G) * static_cast<unsigned>(peer) << 32);
}

// A communicator with one window, on memory of ncclMemAlloc.
class Job {
 public:
  Job(const Launch& launch, const ncclDevCommRequirements& requirements) : launch_(launch) {
    CHECK(cudaSetDevice(launch.local_rank));
    CHECK(ncclCommInitRank(&comm_, launch.ranks, exchange_id(launch), launch.rank));
    CHECK(ncclMemAlloc(&memory_, kWords * 8));
    for (std::size_t i = 0; i < kWords; ++i) words()[i] = word(launch.rank, i);
    CHECK(ncclCommWindowRegister(comm_, memory_, kWords * 8, &window_, NCCL_WIN_COLL_SYMMETRIC));
    CHECK(ncclDevCommCreate(comm_, &requirements, &device_));
  }
  ~Job() {
    CHECK(ncclDevCommDestroy(comm_, &device_));
    CHECK(ncclCommWindowDeregister(comm_, window_));
    CHECK(ncclMemFree(memory_));
    CHECK(ncclCommDestroy(comm_));
  }

  ncclComm_t communicator() const { return comm_; }
  std::uint64_t* words() const { return static_cast<std::uint64_t*>(memory_); }
  const ncclWindow_vidmem& window() const { return *window_; }
  const ncclDevComm& device() const { return device_; }

  // ncclLsaBarrierSession, without multimem.
  void barrier() {
    ++epoch_;
    for (int peer = 0; peer < device_.lsaSize; ++peer)
      __atomic_store_n(inbox(peer, device_.lsaRank), epoch_, __ATOMIC_RELEASE);
    for (int peer = 0; peer < device_.lsaSize; ++peer)
      while (__atomic_load_n(inbox(device_.lsaRank, peer), __ATOMIC_ACQUIRE) < epoch_) sched_yield();
  }

 private:
  std::uint32_t* inbox(int owner, int peer) const {
    auto* const state = reinterpret_cast<std::uint32_t*>(lsa_pointer(device_.resourceWindow_inlined, owner) +
                                                         std::size_t{device_.lsaBarrier.bufHandle} * 128);
    return state + 3 * device_.lsaBarrier.nBarriers + peer;
  }

  const Launch launch_;
  ncclComm_t comm_ = nullptr;
  void* memory_ = nullptr;
  ncclWindow_t window_ = nullptr;
  ncclDevComm device_ = {};
  std::uint32_t epoch_ = 0;
};

void loads_and_stores(const Launch& launch) {
  ncclDevCommRequirements requirements = {};
  requirements.lsaBarrierCount = 2;
  Job job(launch, requirements);
  if (job.device().lsaSize != launch.ranks || job.device().lsaRank != launch.rank) fail("the LSA team is wrong");
  job.barrier();
  for (int peer = 0; peer < launch.ranks; ++peer) {
    const auto* const theirs = reinterpret_cast<const std::uint64_t*>(lsa_pointer(job.window(), peer));
    for (std::size_t i = 0; i < kWords; ++i)
      if (theirs[i] != word(peer, i)) fail("a load from a peer is wrong");
  }
  job.barrier();
  for (int peer = 0; peer < launch.ranks; ++peer)
    reinterpret_cast<std::uint64_t*>(lsa_pointer(job.window(), peer))[launch.rank] = word(launch.rank, 7777);
  job.barrier();
  for (int peer = 0; peer < launch.ranks; ++peer)
    if (job.words()[peer] != word(peer, 7777)) fail("a store of a peer is missing");
  job.barrier();
}

// NCCL's own kernels, whose buffers are in the window: an allgather, an allreduce, and a message to the next rank.
void collectives(const Launch& launch) {
  const Job job(launch, {});
  ncclComm_t comm = job.communicator();
  std::uint64_t* const words = job.words();
  const auto ranks = static_cast<std::size_t>(launch.ranks), part = kWords / ranks;
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  CHECK(ncclAllGather(words + static_cast<std::size_t>(launch.rank) * part, words, part, ncclUint64, comm, stream));
  CHECK(ncclAllReduce(words, words, part * ranks, ncclUint64, ncclSum, comm, stream));
  CHECK(ncclGroupStart());
  CHECK(ncclSend(words, part, ncclUint64, (launch.rank + 1) % launch.ranks, comm, stream));
  CHECK(ncclRecv(words + part, part, ncclUint64, (launch.rank + launch.ranks - 1) % launch.ranks, comm, stream));
  CHECK(ncclGroupEnd());
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaStreamDestroy(stream));
  for (std::size_t i = 0; i < part * ranks; ++i) {
    const std::size_t from = i / part == 1 ? i - part : i;
    if (words[i] != ranks * word(static_cast<int>(from / part), from)) fail("a result is wrong");
  }
}

// multimem.red.add and multimem.ld_reduce.add of each word.
void multicast(const Launch& launch) {
  ncclDevCommRequirements requirements = {};
  requirements.lsaBarrierCount = 1;
  requirements.lsaMultimem = true;
  Job job(launch, requirements);
  char* const base = static_cast<char*>(job.device().lsaMultimem.mcBasePtr);
  if (base == nullptr) fail("no multicast address");
  char* const window = base + std::size_t{job.window().mcOffset4K} * 4096;
  job.barrier();
  std::vector<void*> members(static_cast<std::size_t>(launch.ranks));
  const auto find = [&](std::size_t index) {
    if (plugfest_cuda_multicast_members(window + index * 8, 8, members.data(), launch.ranks) != launch.ranks)
      fail("the multicast address does not stand for the memory of all ranks");
  };
  std::uint64_t ranks_sum = 0;
  for (int rank = 0; rank < launch.ranks; ++rank) ranks_sum += word(rank, 0);
  for (std::size_t i = 0; i < kWords; ++i) {
    find(i);
    std::uint64_t sum = 0;
    for (void* const one : members) sum += *static_cast<std::uint64_t*>(one);
    if (sum != ranks_sum + static_cast<std::uint64_t>(launch.ranks) * i) fail("a sum over all ranks is wrong");
  }
  job.barrier();
  find(kWords - 1);
  for (void* const one : members) __atomic_fetch_add(static_cast<std::uint64_t*>(one), 1, __ATOMIC_RELAXED);
  job.barrier();
  if (job.words()[kWords - 1] != word(launch.rank, kWords - 1) + static_cast<std::uint64_t>(launch.ranks))
    fail("an addition to all ranks is missing");
  job.barrier();
}

void ordinary_access_to_multicast(const Launch& launch) {
  ncclDevCommRequirements requirements = {};
  requirements.lsaBarrierCount = 1;
  requirements.lsaMultimem = true;
  const Job job(launch, requirements);
  *static_cast<volatile std::uint64_t*>(job.device().lsaMultimem.mcBasePtr) = 1;
}

// The put of ncclGin with a signal and a counter, in the format of gin_proxy_device_host_common.h.
void post_put(const ncclGinProxyGpuCtx_t& context, int peer, void* window, std::size_t from, std::size_t to,
              std::size_t bytes, std::uint16_t signal, std::uint16_t counter) {
  ncclGinProxyGfd_t put = {};
  for (int i = 0; i < ncclGinProxyGfdQwords; ++i) put.qword[i].flag.v = 1;
  const auto handle = reinterpret_cast<std::uintptr_t>(window);
  put.qword[ncclGinProxyGfdHeader].header.op =
      ncclGinProxyOpPut | ncclGinProxyOpWithSignalInc | ncclGinProxyOpWithCounter;
  put.qword[ncclGinProxyGfdHeader].header.size = bytes;
  put.qword[ncclGinProxyGfdSrcOff].srcOff.srcOff = from;
  put.qword[ncclGinProxyGfdSrcHandle].srcHandle.srcHandle = handle;
  put.qword[ncclGinProxyGfdDstOff].dstOff.dstOff = to;
  put.qword[ncclGinProxyGfdDstHandle].dstHandle.dstHandle = handle;
  put.qword[ncclGinProxyGfdCompletion].completion.counterId = counter;
  put.qword[ncclGinProxyGfdCompletion].completion.signalId = signal;
  put.qword[ncclGinProxyGfdCompletion].completion.signalValLow = 1;
  const std::uint32_t index = context.pis[peer]++;
  // The entries are aligned, although NVIDIA's type is packed.
  void* const slot = context.queues + static_cast<std::uint32_t>(peer) * context.queueSize + index % context.queueSize;
  auto* const words = static_cast<std::uint64_t*>(slot);
  for (int i = ncclGinProxyGfdQwords - 1; i >= 0; --i) __atomic_store_n(&words[i], put.qword[i].raw, __ATOMIC_RELEASE);
}

// Each rank puts a part of its window into each other rank's window, at an offset of its own.
void puts(const Launch& launch) {
  constexpr std::uint16_t kSignal = 1, kCounter = 1;
  const std::size_t words = kWords / static_cast<std::size_t>(launch.ranks), bytes = words * 8;
  ncclDevCommRequirements requirements = {};
  requirements.ginSignalCount = 2;
  requirements.ginCounterCount = 2;
  const Job job(launch, requirements);
  const ncclDevComm& device = job.device();
  if (device.ginContextCount == 0 || device.ginTypes[0] != NCCL_NET_DEVICE_GIN_PROXY) fail("no GIN proxy");
  const auto& context = *static_cast<const ncclGinProxyGpuCtx_t*>(device.ginHandles[0]);
  const std::size_t begin = 4096 * std::size_t{job.window().ginOffset4K};
  // The part of the source that is not overwritten.
  const std::size_t own = static_cast<std::size_t>(launch.rank) * bytes;
  for (int peer = 0; peer < launch.ranks; ++peer)
    if (peer != launch.rank)
      post_put(context, peer, job.window().ginWins[0], begin + own, begin + own, bytes,
               static_cast<std::uint16_t>(device.ginSignalBase + kSignal),
               static_cast<std::uint16_t>(device.ginCounterBase + kCounter));
  const auto others = static_cast<std::uint64_t>(launch.ranks - 1);
  const auto wait_for = [&](const std::uint64_t* value) {
    while (__atomic_load_n(value, __ATOMIC_ACQUIRE) < others) sched_yield();
  };
  wait_for(context.signals + device.ginSignalBase + kSignal);
  wait_for(context.counters + device.ginCounterBase + kCounter);
  for (std::size_t i = 0; i < words * static_cast<std::size_t>(launch.ranks); ++i)
    if (job.words()[i] != word(static_cast<int>(i / words), i)) fail("the data of a put are wrong");
}

}  // namespace

int main(int, char** arguments) {
  const Launch launch = read_launch();
  const char* const what = arguments[1];
  if (std::strcmp(what, "loads-and-stores") == 0) loads_and_stores(launch);
  if (std::strcmp(what, "collectives") == 0) collectives(launch);
  if (std::strcmp(what, "multicast") == 0) multicast(launch);
  if (std::strcmp(what, "ordinary-access-to-multicast") == 0) ordinary_access_to_multicast(launch);
  if (std::strcmp(what, "puts") == 0) puts(launch);
  std::printf("%s: ok\n", what);
}
