// Devices: their number, attributes and PCI addresses. All are alike: an H100's compute capability. They have virtual
// memory management, multicast, DMA-BUFs and access to each other's memory only if the user asked for it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "harness/nccl/cuda/physical_memory.h"
#include "harness/nccl/cuda/refuse.h"
#include "harness/nccl/cuda/runtime.h"

namespace plugfest::nccl::cuda {
namespace {

constexpr int kVersion = 13000;
constexpr int kMaxDevices = 16;
thread_local int current_device = 0;
thread_local int capture_mode = 0;

// The values of cudaDeviceAttr and CUdevice_attribute, which have the same numbers.
constexpr std::pair<int, int> kAttributes[] = {
    {1, 1024},      // threads per block
    {10, 32},       // warp size
    {16, 132},      // multiprocessors
    {13, 1980000},  // clock, kHz
    {18, 0},        // integrated
    {19, 1},        // host memory can be mapped
    {20, 0},        // compute mode: default
    {34, 0},        // PCI device
    {50, 0},        // PCI domain
    {41, 1},        // unified addressing
    {75, 9},        // compute capability
    {76, 0},        // its minor version
    {83, 1},        // managed memory
    {86, 0},        // atomic operations between host and device
    {88, 0},        // access to pageable memory
    {89, 0},        // access to managed memory at the same time
    {91, 1},        // host pointer of registered memory usable
    {95, 1},        // cooperative launch
    {96, 1},        // cooperative launch on several devices
    {97, 232448},   // shared memory per block, on request
    {99, 1},        // host memory registration
    {115, 0},       // memory pools
    {116, 1},       // GPUDirect RDMA
    {117, 0},       // its flush options
    {118, 0},       // its ordering
    {134, 0},       // NUMA node of the host
};

constexpr int kAttributesOfVirtualMemory[] = {
    102,  // virtual memory management
    103,  // its handles as file descriptors
    110,  // GPUDirect RDMA with it
    124,  // DMA-BUF
    132,  // multicast
};

constexpr std::pair<int, const char*> kErrorNames[] = {
    {kSuccess, "cudaSuccess"},
    {kInvalidValue, "cudaErrorInvalidValue"},
    {kMemoryAllocation, "cudaErrorMemoryAllocation"},
    {kInvalidDevice, "cudaErrorInvalidDevice"},
    {kPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported"},
    {kInvalidResourceHandle, "cudaErrorInvalidResourceHandle"},
    {kNotReady, "cudaErrorNotReady"},
};

int write_properties(void* properties, int device, std::size_t size, std::size_t multiprocessors_at,
                     std::size_t pci_bus_at) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  auto* const bytes = static_cast<std::byte*>(properties);
  std::memset(bytes, 0, size);
  std::strcpy(reinterpret_cast<char*>(bytes), kDeviceName);
  const auto put = [&](std::size_t offset, auto value) { std::memcpy(bytes + offset, &value, sizeof(value)); };
  std::size_t free = 0, total = 0;
  ::cudaMemGetInfo(&free, &total);
  put(kTotalMemoryAt, total);
  put(kWarpSizeAt, 32);
  put(kThreadsPerBlockAt, 1024);
  put(kMajorAt, 9);
  put(multiprocessors_at, 132);
  put(pci_bus_at, device + 1);
  return kSuccess;
}

}  // namespace

int device_count() {
  const char* const text = std::getenv("PLUGFEST_NCCL_DEVICES");
  return std::clamp(text == nullptr ? 1 : std::atoi(text), 1, kMaxDevices);
}

}  // namespace plugfest::nccl::cuda

using namespace plugfest::nccl;
using namespace plugfest::nccl::cuda;

extern "C" {

int cudaGetDeviceCount(int* count) { return give(count, device_count()); }
int cudaGetDevice(int* device) { return give(device, current_device); }

int cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  current_device = device;
  return kSuccess;
}

int cudaDeviceGetAttribute(int* value, int number, int device) {
  constexpr int kPciBus = 33, kFabricHandles = 128;
  if (number == kPciBus) return give(value, device + 1);
  for (const auto& [known, is] : kAttributes)
    if (known == number) return give(value, is);
  if (number == kFabricHandles) return give(value, has_nvlink_domain());
  for (const int known : kAttributesOfVirtualMemory)
    if (known == number) return give(value, has_virtual_memory());
  refuse(fmt::format("device attribute {}: no stand-in", number));
}

int cudaGetDeviceProperties(void* properties, int device) {
  return write_properties(properties, device, kPropertiesBytes, kMultiprocessorsAt, kPciBusAt);
}

int cudaGetDeviceProperties_v2(void* properties, int device) {
  return write_properties(properties, device, kPropertiesBytes12, kMultiprocessorsAt12, kPciBusAt12);
}

int cudaDeviceGetPCIBusId(char* text, int size, int device) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  const auto end = fmt::format_to_n(text, static_cast<std::size_t>(size) - 1, "0000:{:02x}:00.0", device + 1);
  *end.out = '\0';
  return kSuccess;
}

int cudaDeviceGetByPCIBusId(int* device, const char* text) {
  const char* const bus = std::strchr(text, ':');
  const int found = bus == nullptr ? -1 : static_cast<int>(std::strtol(bus + 1, nullptr, 16)) - 1;
  if (found < 0 || found >= device_count()) return kInvalidValue;
  *device = found;
  return kSuccess;
}

int cudaDeviceCanAccessPeer(int* can, int one, int other) { return give(can, has_virtual_memory() && one != other); }
int cudaDeviceEnablePeerAccess(int, unsigned) { return has_virtual_memory() ? kSuccess : kPeerAccessUnsupported; }
int cudaDeviceSetLimit(int, std::size_t) { return kSuccess; }
int cudaDriverGetVersion(int* version) { return give(version, kVersion); }
int cudaRuntimeGetVersion(int* version) { return give(version, kVersion); }

const char* cudaGetErrorName(int code) {
  for (const auto& [known, name] : kErrorNames)
    if (known == code) return name;
  return "cudaErrorNotSupported";
}

const char* cudaGetErrorString(int code) { return cudaGetErrorName(code); }

int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *greatest = 0;
  return give(least, 0);
}

int cudaDeviceReset() { return cudaDeviceSynchronize(); }
int cudaSetDeviceFlags(unsigned) { return kSuccess; }

int cudaThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return kSuccess;
}
}
