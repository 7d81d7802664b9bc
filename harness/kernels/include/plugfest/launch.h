// Launches of kernels. The compiler front turns
// clang-format off
//   __global__ void k(T a) { BODY }        into
//       void k(T a) { ::plugfest::kernels::enter("k", [=]() mutable { BODY }); }
//   k<<<grid, block, shared, stream>>>(a)  into
//       (::plugfest::kernels::configure(grid, block, shared, stream), k(a))
// clang-format on
// so that the compiler itself deduces template arguments and converts the arguments, once for each launch.
#pragma once

#include <cuda_runtime_api.h>

#include <new>
#include <utility>

#include "plugfest_kernel.h"

namespace plugfest::kernels {

/// The arguments between <<< and >>>.
struct Configuration {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  void* stream = nullptr;
  Configuration* outer = nullptr;
};

/// The launches of this thread whose kernel has not been called yet, the latest first: an argument may launch another
/// kernel.
inline thread_local Configuration* pending = nullptr;

inline void configure(dim3 grid, dim3 block, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  pending = new Configuration{grid, block, shared_bytes, stream, pending};
}

/// The body of a kernel, called with its arguments by the host.
template <typename Body>
inline void enter(const char* name, Body body, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (pending == nullptr)
    plugfest_kernel_fault("a kernel was called without <<<…>>>: launch it, or use cudaLaunchKernel with its own type",
                          {file, line});
  const Configuration now = *pending;
  delete std::exchange(pending, now.outer);
  const Launch launch = {name,
                         {now.grid.x, now.grid.y, now.grid.z},
                         {now.block.x, now.block.y, now.block.z},
                         now.shared_bytes,
                         now.stream,
                         [](const void* state) {
                           Body own(*static_cast<const Body*>(state));  // a thread may change its parameters
                           own();
                         },
                         new Body(std::move(body)),
                         [](void* state) { delete static_cast<Body*>(state); }};
  plugfest_kernel_launch(&launch);
}

template <typename... P, std::size_t... I>
void call_with(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_reference_t<P>*>(arguments[I])...);
}

}  // namespace plugfest::kernels

/// Launches a kernel whose parameters have the types that `kernel` declares. A `const void*` declares none: the
/// runtime's function of this name refuses it.
template <typename... P>
inline cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                                    std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  plugfest::kernels::configure(grid, block, shared_bytes, stream);
  plugfest::kernels::call_with(kernel, arguments, std::index_sequence_for<P...>());
  return cudaPeekAtLastError();
}

template <typename... P, typename... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  plugfest::kernels::configure(config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
  kernel(std::forward<A>(arguments)...);
  return cudaPeekAtLastError();
}
