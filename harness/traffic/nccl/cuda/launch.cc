#include "harness/traffic/nccl/cuda/launch.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "harness/traffic/nccl/cuda/refuse.h"
#include "harness/traffic/nccl/cuda/runtime.h"
#include "harness/traffic/nccl/cuda/stream.h"

namespace plugfest::nccl::cuda {
namespace {

Kernels& the_kernels() {
  static auto* const kernels = new Kernels;
  return *kernels;
}

}  // namespace

void set_kernels(Kernels kernels) { the_kernels() = std::move(kernels); }

}  // namespace plugfest::nccl::cuda

using namespace plugfest::nccl;
using namespace plugfest::nccl::cuda;

extern "C" {

int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** parameters, void** extra) {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  for (std::size_t i = 0; extra != nullptr && extra[i] != nullptr; i += 2) {
    const auto key = reinterpret_cast<std::uintptr_t>(extra[i]);
    if (key == kParameterBuffer) begin = static_cast<const std::byte*>(extra[i + 1]);
    if (key == kParameterBufferSize) bytes = *static_cast<const std::size_t*>(extra[i + 1]);
  }
  if (parameters != nullptr || begin == nullptr)
    refuse("cuLaunchKernelEx: the kernel's parameters are not in one buffer");
  if (!the_kernels()) refuse("cuLaunchKernelEx: a kernel was launched before libnccl.so.2 was prepared");
  return enqueue(config->stream, [function, arguments = std::vector<std::byte>(begin, begin + bytes)] {
    the_kernels()(function, arguments);
  });
}

int cudaFuncGetAttributes(FunctionAttributes* attributes, const void*) {
  *attributes = {};
  attributes->threads_per_block = 1024;
  attributes->registers = 96;
  attributes->ptx_version = 90;
  attributes->binary_version = 90;
  return kSuccess;
}

int cudaFuncSetAttribute(const void*, int, int) { return kSuccess; }

int cudaGetFuncBySymbol(void** function, const void* symbol) {
  *function = const_cast<void*>(symbol);
  return kSuccess;
}
}
