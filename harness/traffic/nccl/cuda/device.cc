// Devices: their number, attributes and PCI addresses. All are alike: an H100's compute capability, without NVLink,
// virtual memory management, multicast, DMA-BUF and access to each other's memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "harness/traffic/nccl/cuda/refuse.h"
#include "harness/traffic/nccl/cuda/runtime.h"

namespace plugfest::nccl::cuda {
namespace {

constexpr int kVersion = 13000;
constexpr int kMaxDevices = 16;
thread_local int current_device = 0;
thread_local int capture_mode = 0;

// Returns the value of a cudaDeviceAttr or CUdevice_attribute, which have the same numbers.
int attribute(int number) {
  switch (number) {
    case 1:  // threads per block
      return 1024;
    case 16:  // multiprocessors
      return 132;
    case 75:  // compute capability
      return 9;
    case 76:  // its minor version
      return 0;
    case 97:  // shared memory per block, on request
      return 232448;
    case 10:  // warp size
      return 32;
    case 41:  // unified addressing
    case 19:  // host memory can be mapped
      return 1;
    case 91:   // host pointer of registered memory usable
    case 95:   // cooperative launch
    case 96:   // cooperative launch on several devices
    case 99:   // host memory registration
    case 116:  // GPUDirect RDMA
      return 1;
    case 102:  // virtual memory management
    case 103:  // its handles as file descriptors
    case 110:  // GPUDirect RDMA with virtual memory management
    case 117:  // its flush options
    case 118:  // its ordering
    case 124:  // DMA-BUF
    case 128:  // fabric handles
    case 132:  // multicast
      return 0;
    default:
      refuse(fmt::format("device attribute {}: no stand-in", number));
  }
}

int write_properties(void* properties, int device, std::size_t size, std::size_t multiprocessors_at,
                     std::size_t pci_bus_at) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  auto* const bytes = static_cast<std::byte*>(properties);
  std::memset(bytes, 0, size);
  std::strcpy(reinterpret_cast<char*>(bytes), kDeviceName);
  const auto put = [&](std::size_t offset, auto value) { std::memcpy(bytes + offset, &value, sizeof value); };
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

using namespace plugfest::nccl::cuda;

extern "C" {

int cudaGetDeviceCount(int* count) {
  *count = device_count();
  return kSuccess;
}

int cudaGetDevice(int* device) {
  *device = current_device;
  return kSuccess;
}

int cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  current_device = device;
  return kSuccess;
}

int cudaDeviceGetAttribute(int* value, int number, int) {
  *value = attribute(number);
  return kSuccess;
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

int cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return kSuccess;
}

int cudaDeviceEnablePeerAccess(int, unsigned) { return kPeerAccessUnsupported; }

int cudaDeviceSetLimit(int, std::size_t) { return kSuccess; }

int cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}

int cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}

const char* cudaGetErrorName(int code) {
  switch (code) {
    case kSuccess:
      return "cudaSuccess";
    case kInvalidValue:
      return "cudaErrorInvalidValue";
    case kMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case kInvalidDevice:
      return "cudaErrorInvalidDevice";
    case kPeerAccessUnsupported:
      return "cudaErrorPeerAccessUnsupported";
    case kInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case kNotReady:
      return "cudaErrorNotReady";
    default:
      return "cudaErrorNotSupported";
  }
}

const char* cudaGetErrorString(int code) { return cudaGetErrorName(code); }

int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return kSuccess;
}

int cudaDeviceReset() { return cudaDeviceSynchronize(); }

int cudaSetDeviceFlags(unsigned) { return kSuccess; }

int cudaPeekAtLastError() { return kSuccess; }

int cudaGetLastError() { return kSuccess; }

int cudaThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return kSuccess;
}
}
