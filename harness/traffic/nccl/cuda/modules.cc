// What the code that nvcc generates calls. Programs may contain kernels; only their launch ends the process.
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <string>

#include "harness/traffic/nccl/cuda/refuse.h"
#include "harness/traffic/nccl/cuda/runtime.h"

namespace plugfest::nccl::cuda {
namespace {

std::mutex mutex;

/// Names of kernels by the addresses of their host functions. Never destroyed: programs register before main().
std::map<const void*, std::string>& names() {
  static auto* const map = new std::map<const void*, std::string>;
  return *map;
}

[[noreturn]] void refuse_kernel(const void* function) {
  const std::lock_guard lock(mutex);
  const auto found = names().find(function);
  refuse(fmt::format("kernel {}: no stand-in: only kernels of NCCL run on the CPU",
                     found == names().end() ? "without name" : found->second));
}

}  // namespace
}  // namespace plugfest::nccl::cuda

using namespace plugfest::nccl::cuda;

extern "C" {

int cudaLaunchKernel(const void* function, Dim3, Dim3, void**, std::size_t, void*) { refuse_kernel(function); }
int cudaLaunchCooperativeKernel(const void* function, Dim3, Dim3, void**, std::size_t, void*) {
  refuse_kernel(function);
}
int cudaLaunchKernelExC(const void*, const void* function, void**) { refuse_kernel(function); }

// Source: crt/host_runtime.h of CUDA 13.0.
int __cudaLaunchKernel(const void* function, Dim3, Dim3, void**, std::size_t, void*) { refuse_kernel(function); }
int __cudaLaunchKernel_ptsz(const void* function, Dim3, Dim3, void**, std::size_t, void*) { refuse_kernel(function); }
int __cudaGetKernel(const void** kernel, const void* function) {
  *kernel = function;
  return kSuccess;
}
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
