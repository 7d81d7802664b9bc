// The functions of the CUDA driver. NCCL asks the runtime for their addresses; plugins and programs open libcuda.so.1.
#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "harness/nccl/cuda/memory.h"
#include "harness/nccl/cuda/physical_memory.h"
#include "harness/nccl/cuda/refuse.h"
#include "harness/nccl/cuda/runtime.h"

namespace plugfest::nccl::cuda {
namespace {

// Symbol not found, as cudaDriverEntryPointQueryResult and CUdriverProcAddressQueryResult number it.
constexpr int kSymbolNotFound = 1;

// The only context of the process.
void* the_context() {
  static int context = 0;
  return &context;
}

// The context of the thread, as it was set last.
void*& current_context() {
  thread_local void* current = the_context();
  return current;
}

void* pointer(unsigned long long address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

// `found`: the allocation that contains `address`. Without one every attribute is 0.
void give_pointer_attribute(void* value, int attribute, const std::optional<Allocation>& found,
                            unsigned long long address) {
  const auto give_bytes = [&](auto answer) {
    if (!found) answer = {};
    std::memcpy(value, &answer, sizeof(answer));
  };
  const Allocation allocation = found.value_or(Allocation{});
  switch (attribute) {
    case 1:  // context
      return give_bytes(the_context());
    case 2:  // memory type
      return give_bytes(static_cast<unsigned>(allocation.type));
    case 3:  // device pointer
    case 4:  // host pointer
      return give_bytes(address);
    case 7:   // id of the buffer
    case 11:  // start of the range
      return give_bytes(static_cast<unsigned long long>(allocation.address));
    case 8:  // managed
      return give_bytes(static_cast<unsigned>(allocation.type == MemoryType::kManaged));
    case 9:  // device
      return give_bytes(allocation.device);
    case 10:  // can be shared with other processes by cudaIpcGetMemHandle
      return give_bytes(0);
    case 12:  // size of the range
      return give_bytes(allocation.bytes);
    case 15:  // accessible by NICs
      return give_bytes(1);
    default:
      refuse(fmt::format("attribute {} of a pointer: no stand-in", attribute));
  }
}

}  // namespace

void* driver_stand_in(const char* name) {
  static const StandIn table[] = {
#define FUNCTION(name, ...) {#name, reinterpret_cast<const void*>(&::name)},
#include "harness/nccl/cuda/driver.def"
#undef FUNCTION
  };
  // If it is absent, NCCL assumes a driver without multicast.
  if (!has_virtual_memory() && std::strcmp(name, "cuMulticastCreate") == 0) return nullptr;
  // Callers name functions without the version that cuda.h adds to them.
  for (const StandIn& one : table)
    if (one.name == std::string_view(name) || one.name == std::string(name) + "_v2")
      return const_cast<void*>(one.function);
  return make_trap(name);
}

}  // namespace plugfest::nccl::cuda

using namespace plugfest::nccl;
using namespace plugfest::nccl::cuda;

extern "C" {

int cuInit(unsigned) { return kSuccess; }
int cuDriverGetVersion(int* version) { return cudaDriverGetVersion(version); }
int cuCtxGetCurrent(void** context) { return give(context, current_context()); }

int cuCtxSetCurrent(void* context) {
  current_context() = context;
  return kSuccess;
}

int cuCtxPushCurrent_v2(void*) { return kSuccess; }

int cuCtxPopCurrent_v2(void** context) {
  if (context != nullptr) *context = the_context();
  return kSuccess;
}

int cuCtxGetDevice(int* device) { return cudaGetDevice(device); }
int cuCtxSynchronize() { return cudaDeviceSynchronize(); }
int cuDevicePrimaryCtxRetain(void** context, int) { return give(context, the_context()); }
int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
int cuDeviceGetCount(int* count) { return cudaGetDeviceCount(count); }

int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= device_count()) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

int cuDeviceGetAttribute(int* value, int number, int device) { return cudaDeviceGetAttribute(value, number, device); }

int cuDeviceGetName(char* text, int size, int) {
  if (size < 1) return kInvalidValue;
  *fmt::format_to_n(text, static_cast<std::size_t>(size) - 1, "{}", kDeviceName).out = '\0';
  return kSuccess;
}

int cuDeviceGetPCIBusId(char* text, int size, int device) { return cudaDeviceGetPCIBusId(text, size, device); }

// Differs between the devices of all hosts of a fabric, whose names differ.
int cuDeviceGetUuid_v2(void* uuid, int device) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  std::array<char, HOST_NAME_MAX + 1> host = {};
  gethostname(host.data(), HOST_NAME_MAX);
  const std::uint64_t words[2] = {std::hash<std::string_view>()(host.data()), static_cast<std::uint64_t>(device)};
  std::memcpy(uuid, words, sizeof words);
  return kSuccess;
}
int cuDeviceGetUuid(void* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

int cuGetErrorString(int code, const char** text) { return give(text, cudaGetErrorString(code)); }
int cuGetErrorName(int code, const char** text) { return give(text, cudaGetErrorName(code)); }

int cuGetExportTable(const void**, const void*) {
  // Only NVIDIA's own libraries call it, especially the CUDA runtime.
  refuse(
      "a CUDA runtime that is linked statically into a plugin, a library or a stripped program: link it with the "
      "dynamic runtime (nvcc -cudart shared), or do not strip the program");
}

int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* status) {
  *function = driver_stand_in(name);
  if (status != nullptr) *status = *function == nullptr ? kSymbolNotFound : 0;
  return kSuccess;
}

// The function of CUDA 11.3, for programs that look it up by dlsym. cuda.h replaces its name by the one above.
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version, unsigned long long flags,
                                     int* status) {
  return cuGetProcAddress_v2(name, function, static_cast<int>(version), flags, status);
}

int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags, int* status) {
  return cuGetProcAddress_v2(name, function, 0, flags, status);
}

int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(address), bytes);
}

int cuMemFree_v2(unsigned long long address) { return cudaFree(pointer(address)); }

int cuMemGetAddressRange_v2(unsigned long long* base, std::size_t* bytes, unsigned long long address) {
  const std::optional<Allocation> found = allocation_of(pointer(address));
  if (!found || (found->type != MemoryType::kDevice && found->file < 0)) return kInvalidValue;
  if (base != nullptr) *base = found->address;
  if (bytes != nullptr) *bytes = found->bytes;
  return kSuccess;
}

int cuMemcpy(unsigned long long to, unsigned long long from, std::size_t bytes) {
  return cudaMemcpy(pointer(to), pointer(from), bytes, 4);
}

int cuMemcpyDtoH_v2(void* to, unsigned long long from, std::size_t bytes) {
  return cudaMemcpy(to, pointer(from), bytes, 4);
}

int cuMemcpyHtoD_v2(unsigned long long to, const void* from, std::size_t bytes) {
  return cudaMemcpy(pointer(to), from, bytes, 4);
}

int cuPointerGetAttribute(void* value, int attribute, unsigned long long address) {
  const std::optional<Allocation> found = allocation_of(pointer(address));
  if (!found) return kInvalidValue;
  give_pointer_attribute(value, attribute, found, address);
  return kSuccess;
}

int cuPointerGetAttributes(unsigned count, const int* attributes, void** values, unsigned long long address) {
  const std::optional<Allocation> found = allocation_of(pointer(address));
  for (unsigned i = 0; i < count; ++i) give_pointer_attribute(values[i], attributes[i], found, address);
  return kSuccess;
}

// Devices use the host's memory: NICs write to it in order.
int cudaDeviceFlushGPUDirectRDMAWrites(int, int) { return kSuccess; }
int cuFlushGPUDirectRDMAWrites(int, int) { return kSuccess; }

int cuDeviceCanAccessPeer(int* can, int one, int other) { return cudaDeviceCanAccessPeer(can, one, other); }
int cuMemAllocHost_v2(void** address, std::size_t bytes) { return cudaMallocHost(address, bytes); }
int cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags) { return cudaHostAlloc(address, bytes, flags); }
int cuMemFreeHost(void* address) { return cudaFreeHost(address); }
int cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned flags) {
  return cudaHostRegister(address, bytes, flags);
}
int cuMemHostUnregister(void* address) { return cudaHostUnregister(address); }
int cuMemHostGetDevicePointer_v2(unsigned long long* device, void* host, unsigned flags) {
  return cudaHostGetDevicePointer(reinterpret_cast<void**>(device), host, flags);
}
int cuMemcpyAsync(unsigned long long to, unsigned long long from, std::size_t bytes, void* stream) {
  return cudaMemcpyAsync(pointer(to), pointer(from), bytes, 4, stream);
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, void* stream) {
  return cudaMemcpyAsync(to, pointer(from), bytes, 4, stream);
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, void* stream) {
  return cudaMemcpyAsync(pointer(to), from, bytes, 4, stream);
}
int cuMemsetD8_v2(unsigned long long to, unsigned char value, std::size_t bytes) {
  return cudaMemset(pointer(to), value, bytes);
}
int cuStreamCreate(void** stream, unsigned flags) { return cudaStreamCreateWithFlags(stream, flags); }
int cuStreamDestroy_v2(void* stream) { return cudaStreamDestroy(stream); }
int cuStreamQuery(void* stream) { return cudaStreamQuery(stream); }
int cuStreamSynchronize(void* stream) { return cudaStreamSynchronize(stream); }
int cuThreadExchangeStreamCaptureMode(int* mode) { return cudaThreadExchangeStreamCaptureMode(mode); }

// Synchronous copies are always complete, which is the only attribute that can be set.
int cuPointerSetAttribute(const void*, int, unsigned long long) { return kSuccess; }
}
