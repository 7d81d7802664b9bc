// The parts of CUDA that the compiler front and the headers must translate correctly. Needs no GPU and no NCCL. Exit
// code 0: all results are right; otherwise one line for each wrong one.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/atomic>

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <cstdio>
#include <vector>

namespace cg = cooperative_groups;

static int failures = 0;

static void expect(const char* what, long long seen, long long wanted) {
  if (seen == wanted) return;
  std::printf("%s: %lld instead of %lld\n", what, seen, wanted);
  ++failures;
}

// Memory that host and device share: all memory of the host, here.
template <typename T>
static T* allocate(std::size_t count) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, count * sizeof(T)) != cudaSuccess) std::printf("cudaMalloc failed\n");
  if (cudaMemset(memory, 0, count * sizeof(T)) != cudaSuccess) std::printf("cudaMemset failed\n");
  return static_cast<T*>(memory);
}

template <typename T>
static T value_of(const T* address) {
  T value;
  if (cudaDeviceSynchronize() != cudaSuccess) std::printf("cudaDeviceSynchronize failed\n");
  if (cudaMemcpy(&value, address, sizeof value, cudaMemcpyDeviceToHost) != cudaSuccess)
    std::printf("cudaMemcpy failed\n");
  return value;
}

template <typename T, int factor = 1>
__global__ void __launch_bounds__(128) add(const T* a, const T* b, T* sum, int count) {
  for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < count; i += blockDim.x * gridDim.x)
    sum[i] = a[i] + factor * b[i];
}

__global__ void number(int* out, int count) {
  for (; count > 0; --count) out[count - 1] = count;  // parameters are the thread's own
}

namespace library {
namespace {
__global__ void reduce_block(int* total) {
  __shared__ int sums[4];
  int value = threadIdx.x;
  for (int distance = warpSize / 2; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffff, value, distance);
  if (threadIdx.x % warpSize == 0) sums[threadIdx.x / warpSize] = value;
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(total, sums[0] + sums[1] + sums[2] + sums[3]);
}
}  // namespace
}  // namespace library

__global__ void histogram(const unsigned char* values, int count, unsigned* bins) {
  extern __shared__ unsigned counts[];
  for (int bin = threadIdx.x; bin < 16; bin += blockDim.x) counts[bin] = 0;
  __syncthreads();
  for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < count; i += blockDim.x * gridDim.x)
    atomicAdd(&counts[values[i] % 16], 1);
  __syncthreads();
  for (int bin = threadIdx.x; bin < 16; bin += blockDim.x) atomicAdd(bins + bin, counts[bin]);
}

extern __shared__ __align__(16) char raw[];
__global__ void cast_dynamic_shared(double* out) {
  double* const numbers = reinterpret_cast<double*>(raw);
  numbers[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) *out = numbers[blockDim.x - 1];
}

__global__ void vote(unsigned* out) {
  const unsigned odd = __ballot_sync(0xffffffff, threadIdx.x & 1);
  const int any = __any_sync(0xffffffff, threadIdx.x == 31), all = __all_sync(0xffffffff, threadIdx.x < 31);
  const unsigned neighbor = __shfl_xor_sync(0xffffffff, threadIdx.x, 1);
  unsigned lane, below;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  if (threadIdx.x != 5) return;
  out[0] = odd;
  out[1] = any;
  out[2] = all;
  out[3] = neighbor;
  out[4] = lane;
  out[5] = below;
}

__global__ void instructions(unsigned* words, unsigned long long* wide) {
  asm volatile("st.relaxed.sys.v4.u32 [%0],{%1,%3,%2,%3};" ::"l"(words), "r"(1), "r"(2), "r"(threadIdx.x + 3)
               : "memory");
  uint4 seen;
  asm volatile("ld.volatile.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(seen.x), "=r"(seen.y), "=r"(seen.z), "=r"(seen.w)
               : "l"(words));
  words[4] = seen.x + 10 * seen.y + 100 * seen.z + 1000 * seen.w;
  asm volatile("red.relaxed.cta.add.u64 [%0],%1;" ::"l"(wide), "l"(40ull) : "memory");
  unsigned long long before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(wide), "l"(2ull) : "memory");
  asm volatile("fence.acq_rel.gpu; st.global.u64 [%0+8], %1;" ::"l"(wide), "l"(before) : "memory");
  float real;
  asm("mov.b32 %0, %1;" : "=f"(real) : "r"(0x40400000));
  words[5] = static_cast<unsigned>(real);
}

// Is never called, so its PTX need not be known.
__device__ inline void unused(float* a) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__global__ void wait_for_other_thread(int* out) {
  __shared__ int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  cuda::atomic_ref<int, cuda::thread_scope_block> shared_flag(flag);
  if (threadIdx.x == 0)
    while (shared_flag.load(cuda::memory_order_acquire) == 0) continue;
  if (threadIdx.x == 63) shared_flag.store(1, cuda::memory_order_release);
  __syncthreads();
  if (threadIdx.x == 0) *out = shared_flag.fetch_add(4) + shared_flag.load();
}

__global__ void groups(int* out) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  const int sum = cg::reduce(tile, static_cast<int>(block.thread_rank()), cg::plus<int>());
  const int first = tile.shfl(static_cast<int>(threadIdx.x), 0);
  block.sync();
  if (threadIdx.x == 17) out[0] = sum, out[1] = first, out[2] = tile.meta_group_rank(), out[3] = tile.thread_rank();
}

__global__ void halves(float* out) { *out = __half2float(__float2half(1.5f) * __float2half(2.0f)); }

__device__ int counter;
__constant__ int table[4] = {1, 2, 3, 4};
__global__ void globals(int* out) {
  atomicAdd(&counter, table[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) *out = counter;
}

__global__ void three_dimensions(unsigned* out) {
  if (threadIdx.x == 1 && threadIdx.y == 2 && threadIdx.z == 1 && blockIdx.y == 1)
    *out = blockDim.x + 10 * blockDim.y + 100 * blockDim.z + 1000 * gridDim.y;
}

// The numbers of 16 bits of multimem against the toolkit's.
static void compare_halves() {
  using plugfest::kernels::ptx::Bfloat;
  using plugfest::kernels::ptx::Half;
  int wrong = 0;
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const __half_raw half = {static_cast<unsigned short>(bits)};
    const __nv_bfloat16_raw bfloat = {static_cast<unsigned short>(bits)};
    const float a = __half2float(half), b = __bfloat162float(bfloat);
    if (a == a && (Half::from_bits(half.x) != a || Half::to_bits(a) != half.x)) ++wrong;
    if (b == b && (Bfloat::from_bits(bfloat.x) != b || Bfloat::to_bits(b) != bfloat.x)) ++wrong;
  }
  for (unsigned bits = 0; bits < 0xff000000u; bits += 65521) {  // also halfway between two numbers
    const float value = __uint_as_float(bits & ~0xfffu);
    if (value != value) continue;
    if (Half::to_bits(value) != __half_raw(__float2half_rn(value)).x) ++wrong;
    if (Bfloat::to_bits(value) != __nv_bfloat16_raw(__float2bfloat16_rn(value)).x) ++wrong;
  }
  expect("conversions of 16-bit numbers", wrong, 0);
}

struct Large {
  int numbers[100];
};
__global__ void with_structure(Large large, int* out) { *out = large.numbers[99]; }

template <typename Function>
__global__ void call(Function function, int* out) {
  *out = function(threadIdx.x);
}

int main() {
  const int count = 1000;
  std::vector<int> numbers(count);
  int *a = allocate<int>(count), *b = allocate<int>(count), *out = allocate<int>(count);
  number<<<1, 1>>>(a, count);
  number<<<dim3(1), dim3(1), 0>>>(b, count);
  add<<<3, 64>>>(a, b, out, count);
  expect("a template whose arguments are deduced", value_of(out + count - 1), 2 * count);
  add<int, 1 << 2><<<(2 << 1), count / 100 > 5 ? 64 : 32, 0, nullptr>>>(a, b, out, count);
  expect("a template with arguments", value_of(out + count - 1), 5 * count);

  int* total = allocate<int>(1);
  library::reduce_block<<<2, 128>>>(total);
  expect("a sum over blocks", value_of(total), 2 * 127 * 128 / 2);

  unsigned char* values = allocate<unsigned char>(count);
  unsigned* bins = allocate<unsigned>(16);
  histogram<<<4, 32, 16 * sizeof(unsigned)>>>(values, count, bins);
  expect("a histogram in dynamic shared memory", value_of(bins), count);

  double* real = allocate<double>(1);
  cast_dynamic_shared<<<1, 20, 20 * sizeof(double)>>>(real);
  expect("dynamic shared memory of a file", static_cast<long long>(value_of(real)), 19);

  unsigned* words = allocate<unsigned>(8);
  vote<<<1, 32>>>(words);
  const unsigned votes[] = {0xaaaaaaaau, 1, 0, 4, 5, 31};
  for (int i = 0; i < 6; ++i) expect("a vote", value_of(words + i), votes[i]);

  unsigned long long* wide = allocate<unsigned long long>(2);
  instructions<<<1, 1>>>(words, wide);
  expect("ld.v4 and st.v4", value_of(words + 4), 1 + 30 + 200 + 3000);
  expect("mov", value_of(words + 5), 3);
  expect("red and atom", value_of(wide), 42);
  expect("the result of atom", value_of(wide + 1), 40);

  wait_for_other_thread<<<1, 64>>>(out);
  expect("a thread that waits", value_of(out), 6);
  groups<<<1, 32>>>(out);
  expect("a sum of a tile", value_of(out), 16 + 17 + 18 + 19 + 20 + 21 + 22 + 23);
  expect("a shuffle of a tile", value_of(out + 1), 16);
  expect("the rank of a tile", value_of(out + 2), 2);
  expect("the rank in a tile", value_of(out + 3), 1);

  float* fraction = allocate<float>(1);
  halves<<<1, 1>>>(fraction);
  expect("a product of halves", static_cast<long long>(value_of(fraction)), 3);
  globals<<<1, 4>>>(out);
  expect("variables of the device", value_of(out), 10);

  dim3 gridDim(1), blockDim(2, 3);  // the host's own variables of these names
  gridDim.y = 2;
  blockDim.z = 2;
  three_dimensions<<<gridDim, blockDim>>>(words);
  expect("three dimensions", value_of(words), 2 + 30 + 200 + 2000);

  Large large = {};
  large.numbers[99] = 7;
  with_structure<<<1, 1>>>(large, out);
  large.numbers[99] = 8;
  expect("a structure as argument", value_of(out), 7);
  call<<<1, 1>>>([count] __device__(int index) { return index + count; }, out);
  expect("a lambda as argument", value_of(out), count);
  void* arguments[] = {&out, const_cast<int*>(&count)};
  expect("cudaLaunchKernel", cudaLaunchKernel(number, dim3(1), dim3(1), arguments), cudaSuccess);
  expect("its kernel", value_of(out + 7), 8);
  void (*pointer)(int*, int) = number;
  (*pointer)<<<1, 1>>>(out, 3);
  expect("a kernel by its address", value_of(out + 2), 3);
  compare_halves();
  return failures == 0 ? 0 : 1;
}
