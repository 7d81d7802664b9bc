// Launches of kernels. NCCL's kernels, and kernels that `plugfest nvcc` has compiled, run on their stream's thread;
// others end the process.
#include <fmt/format.h>

#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "harness/kernels/include/plugfest_kernel.h"
#include "harness/kernels/run/grid.h"
#include "harness/nccl/cuda/memory.h"
#include "harness/nccl/cuda/refuse.h"
#include "harness/nccl/cuda/runtime.h"

namespace plugfest::nccl::cuda {
namespace {

Kernels& the_kernels() {
  static auto* const kernels = new Kernels;
  return *kernels;
}

std::mutex mutex;

// Names of kernels by the addresses of their host functions. Never destroyed: programs register before main().
std::map<const void*, std::string>& names() {
  static auto* const map = new std::map<const void*, std::string>;
  return *map;
}

[[noreturn]] void refuse_kernel(const void* function) {
  const std::lock_guard lock(mutex);
  const auto found = names().find(function);
  refuse(
      fmt::format("kernel {}: no stand-in: only kernels of NCCL, and those that `plugfest "
                  "nvcc` compiles, run on the CPU",
                  found == names().end() ? "without name" : found->second));
}

// The error of the last launch of this thread, until cudaGetLastError() is called.
thread_local int last_error = kSuccess;

void run_kernel(const kernels::Launch& launch) {
  try {
    static const kernels::Settings settings = kernels::Settings::from_environment();
    kernels::Grid(launch, settings).run();
  } catch (const std::exception& error) {
    refuse(fmt::format("kernel {}: {}", launch.name, error.what()));
  }
}

}  // namespace

void set_kernels(Kernels kernels) { the_kernels() = std::move(kernels); }

}  // namespace plugfest::nccl::cuda

using namespace plugfest;
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

int plugfest_kernel_launch(const kernels::Launch* launch) {
  report_access_to_device_memory();
  last_error = kernels::Grid::check(*launch);
  if (last_error != kSuccess) {
    launch->destroy(launch->state);
    return last_error;
  }
  return enqueue(launch->stream, [copy = *launch, name = std::string(launch->name)]() mutable {
    copy.name = name.c_str();
    run_kernel(copy);
    copy.destroy(copy.state);
  });
}

int cudaPeekAtLastError() { return last_error; }
int cudaGetLastError() { return std::exchange(last_error, kSuccess); }

int cudaFuncGetAttributes(FunctionAttributes* attributes, const void*) {
  *attributes = {};
  attributes->threads_per_block = 1024;
  attributes->registers = 96;
  attributes->ptx_version = 90;
  attributes->binary_version = 90;
  return kSuccess;
}

int cudaFuncSetAttribute(const void*, int, int) { return kSuccess; }
int cudaGetFuncBySymbol(void** function, const void* symbol) { return give(function, const_cast<void*>(symbol)); }

// These functions are called by code that nvcc generates. Programs may contain kernels; only their launch ends the
// process.

int cudaLaunchKernel(const void* function, Dim3, Dim3, void**, std::size_t, void*) { refuse_kernel(function); }
int cudaLaunchCooperativeKernel(const void* function, Dim3, Dim3, void**, std::size_t, void*) {
  refuse_kernel(function);
}
int cudaLaunchKernelExC(const void*, const void* function, void**) { refuse_kernel(function); }

// Source: crt/host_runtime.h of CUDA 13.0.
int __cudaLaunchKernel(const void* function, Dim3, Dim3, void**, std::size_t, void*) { refuse_kernel(function); }
int __cudaLaunchKernel_ptsz(const void* function, Dim3, Dim3, void**, std::size_t, void*) { refuse_kernel(function); }
int __cudaGetKernel(const void** kernel, const void* function) { return give(kernel, function); }
unsigned __cudaPushCallConfiguration(Dim3, Dim3, std::size_t, void*) { return kSuccess; }
int __cudaPopCallConfiguration(Dim3*, Dim3*, std::size_t*, void*) { return kSuccess; }

void** __cudaRegisterFatBinary(void*) {
  static void* module = nullptr;
  return &module;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
  const std::lock_guard lock(mutex);
  names()[function] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterHostVar(void**, const char*, char*, std::size_t) {}
}
