// The functions that kernels call on the CPU: the interface between the headers and the compiler front of `plugfest
// nvcc` and the execution in libplugfest-cuda.so. C++17, since it is compiled into user programs.
//
// Each CUDA thread is a fiber. Each block has its own thread of the operating system, so a thread_local variable is the
// memory that the threads of a block share. Source: CUDA C++ Programming Guide 13.0, sections 5 and 10.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

namespace plugfest::kernels {

/// Threads of a warp.
inline constexpr unsigned kWarpSize = 32;

/// Three-dimensional counts or indices, with the layout of CUDA's uint3 and dim3.
struct Index {
  unsigned x, y, z;
};

/// One launch of a kernel.
struct Launch {
  const char* name;  ///< for messages; copied
  Index grid;        ///< blocks
  Index block;       ///< threads of a block
  std::size_t shared_bytes;
  void* stream;                     ///< a cudaStream_t
  void (*body)(const void* state);  ///< runs one CUDA thread
  void* state;                      ///< the arguments; read by all threads
  void (*destroy)(void* state);     ///< called once, after the last thread, or if the launch fails
};

/// A place in the source, for verdicts.
struct Place {
  const char* file;
  int line;
};

/// The word and the value for which a thread waits in a loop, for verdicts.
struct Expected {
  const char* what;  ///< the word: "signal {} of context {}", where `number` and `context` are to stand in it
  std::uint64_t number;
  std::uint64_t context;
  std::uint64_t wanted;
};

}  // namespace plugfest::kernels

extern "C" {

/// Appends a launch to its stream. Returns a cudaError_t, for example 9 (cudaErrorInvalidConfiguration) for a block of
/// more than 1,024 threads.
int plugfest_kernel_launch(const plugfest::kernels::Launch* launch);

// The following are for the threads of kernels. Called elsewhere, they end the process with one line.

/// threadIdx, blockIdx, blockDim and gridDim.
const plugfest::kernels::Index* plugfest_kernel_thread_index();
const plugfest::kernels::Index* plugfest_kernel_block_index();
const plugfest::kernels::Index* plugfest_kernel_block_size();
const plugfest::kernels::Index* plugfest_kernel_grid_size();

/// The shared memory whose size the launch gives, aligned to 1,024 bytes.
void* plugfest_kernel_dynamic_shared();

/// The number of the thread in its warp, 0 to 31.
unsigned plugfest_kernel_lane();

/// Waits until `threads` threads of the block have called it with this barrier, 0 to 15. `threads` = 0: all threads of
/// the block that have not ended. bar.sync of PTX.
void plugfest_kernel_barrier(unsigned barrier, unsigned threads, plugfest::kernels::Place place);

/// Waits until all threads of the warp whose bits are set in `mask` have called it with the same mask, and exchanges
/// their values: all[i] becomes the value of lane i. Threads that have ended do not take part, and their value is 0.
/// Returns the lanes that took part. __syncwarp, shuffles and votes are made of it.
std::uint32_t plugfest_kernel_exchange(std::uint32_t mask, std::uint64_t value, std::uint64_t* all,
                                       plugfest::kernels::Place place);

/// Call it for each load of a word that another thread may change, with its address, size (1, 2, 4, 8) and the value
/// that was seen: a thread that sees the same value again and again lets other threads run.
void plugfest_kernel_loaded(const volatile void* address, std::size_t bytes, std::uint64_t value);

/// Sets what the calling thread waits for in a loop, for verdicts; null: unknown. Returns the previous value.
const plugfest::kernels::Expected* plugfest_kernel_expect(const plugfest::kernels::Expected* expected);

// Plain accesses and fences. In `--weak` runs, stores to memory that other ranks access become visible to them late,
// and in any order that PTX permits.

/// Whether the process runs with `--weak`; otherwise the functions below need not be called.
extern bool plugfest_kernel_is_weak;

/// Call it before a store of at most 16 bytes that is not atomic.
void plugfest_kernel_before_store(void* address, std::size_t bytes);
/// Call it before a load, and before an atomic operation.
void plugfest_kernel_before_load(const volatile void* address, std::size_t bytes);
/// Call it before a fence or an atomic operation with release semantics, of a scope beyond the block.
void plugfest_kernel_release();
/// Stores a word of a descriptor of a put, which NCCL's proxy reads. In `--weak` runs, the proxy sees it late.
/// It is in the queue of the last plugfest_kernel_expect().
void plugfest_kernel_post(std::uint64_t* word, std::uint64_t value);

/// Lets other threads run.
void plugfest_kernel_yield();

/// Ends the process with one line about an error of the kernel at `place`.
[[noreturn]] void plugfest_kernel_fault(const char* reason, plugfest::kernels::Place place);
}

namespace plugfest::kernels {

/// States what the thread waits for as long as the object exists. The compiler front inserts it into functions of NCCL
/// that wait.
class Expects {
 public:
  Expects(const char* what, std::uint64_t number, std::uint64_t context, std::uint64_t wanted)
      : expected_{what, number, context, wanted}, before_(plugfest_kernel_expect(&expected_)) {}
  ~Expects() { plugfest_kernel_expect(before_); }
  Expects(const Expects&) = delete;
  Expects& operator=(const Expects&) = delete;

 private:
  const Expected expected_;
  const Expected* const before_;
};

/// Launches `kernel` with copies of `arguments`, as `kernel<<<grid, block, shared, stream>>>(arguments…)` does.
/// Returns a cudaError_t.
template <typename... P, typename... A>
int launch(const char* name, void (*kernel)(P...), Index grid, Index block, std::size_t shared_bytes, void* stream,
           A&&... arguments) {
  using State = std::pair<void (*)(P...), std::tuple<std::decay_t<P>...>>;
  auto* const state = new State(kernel, std::tuple<std::decay_t<P>...>(std::forward<A>(arguments)...));
  const Launch request = {name,
                          grid,
                          block,
                          shared_bytes,
                          stream,
                          [](const void* one) {
                            const auto& [function, values] = *static_cast<const State*>(one);
                            std::apply(function, values);
                          },
                          state,
                          [](void* one) { delete static_cast<State*>(one); }};
  return plugfest_kernel_launch(&request);
}

}  // namespace plugfest::kernels
