// libnvidia-ml.so.1 for NCCL: devices without NVLink and without access to each other's memory.
// Source: NVML API, and the functions that NCCL looks up (src/misc/nvmlwrap.cc).
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum : int { kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3 };

unsigned device_count() {
  const char* const text = std::getenv("PLUGFEST_NCCL_DEVICES");
  return text == nullptr ? 1 : static_cast<unsigned>(std::clamp(std::atoi(text), 1, 16));
}

// Handles are 1, 2, …
int handle_of(unsigned index, void** device) {
  if (index >= device_count()) return kInvalidArgument;
  *device = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  return kSuccess;
}

}  // namespace

EXPORT int nvmlInit_v2() { return kSuccess; }
EXPORT int nvmlInit() { return kSuccess; }
EXPORT int nvmlShutdown() { return kSuccess; }

EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = device_count();
  return kSuccess;
}

EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void** device) { return handle_of(index, device); }

// "0000:01:00.0" is the first device.
EXPORT int nvmlDeviceGetHandleByPciBusId(const char* address, void** device) {
  const char* const bus = std::strchr(address, ':');
  if (bus == nullptr) return kInvalidArgument;
  return handle_of(static_cast<unsigned>(std::strtoul(bus + 1, nullptr, 16)) - 1, device);
}

EXPORT int nvmlDeviceGetIndex(void* device, unsigned* index) {
  *index = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device)) - 1;
  return kSuccess;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return kSuccess;
}

EXPORT int nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  *status = 1;  // the chipset does not support it
  return kSuccess;
}

EXPORT int nvmlDeviceGetNvLinkCapability(void*, unsigned, int, unsigned*) { return kNotSupported; }
EXPORT const char* nvmlErrorString(int code) { return code == kSuccess ? "success" : "not supported by the emulation"; }
