// libnvidia-ml.so.1 for NCCL. Devices have NVLinks to a switch, and access to each other's memory, only if the user
// asked for virtual memory. Source: NVML API, and the functions that NCCL looks up (src/misc/nvmlwrap.cc).
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

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

// nvmlFieldValue_t.
struct FieldValue {
  unsigned field;
  unsigned link;
  long long timestamp, latency_us;
  int type;
  int code;
  std::uint64_t number;
};

// nvmlPciInfo_t, as functions without a version in their name fill it in.
struct PciInfo {
  char bus_id[16];
  unsigned numbers[9];
};

// nvmlGpuFabricInfo_v2_t.
struct FabricInfo {
  unsigned version;
  char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
  unsigned health;
};

bool is_one(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && std::strcmp(value, "1") == 0;
}

// For both see physical_memory.h.
bool has_virtual_memory() { return is_one("PLUGFEST_NCCL_VIRTUAL_MEMORY"); }
bool has_nvlink_domain() { return has_virtual_memory() && is_one("PLUGFEST_NCCL_NVLINK_DOMAIN"); }

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
  *status = has_virtual_memory() ? 0 : 1;  // 1: the chipset does not support it
  return kSuccess;
}

// NCCL asks whether a link can access other GPUs.
EXPORT int nvmlDeviceGetNvLinkCapability(void*, unsigned, int, unsigned* can) {
  if (!has_virtual_memory()) return kNotSupported;
  *can = 1;
  return kSuccess;
}

// Here, only the state of a link has a value.
EXPORT int nvmlDeviceGetFieldValues(void*, int count, FieldValue* values) {
  constexpr unsigned kLinkState = 165;
  if (!has_virtual_memory()) return kNotSupported;
  for (FieldValue& value : std::span(values, static_cast<std::size_t>(count))) {
    value.code = value.field == kLinkState ? kSuccess : kNotSupported;
    value.number = 1;  // enabled
  }
  return kSuccess;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo(void*, unsigned, PciInfo* info) {
  if (!has_virtual_memory()) return kNotSupported;
  *info = {};
  std::strcpy(info->bus_id, "fffffff:ffff:ff");  // a device that a virtual machine does not see: a switch
  return kSuccess;
}

// The devices of all hosts are in one clique.
EXPORT int nvmlDeviceGetGpuFabricInfoV(void*, FabricInfo* info) {
  constexpr unsigned char kCompleted = 3;
  if (!has_nvlink_domain()) return kNotSupported;
  *info = {info->version, "plugfest", kSuccess, 1, kCompleted, 0};
  return kSuccess;
}

EXPORT const char* nvmlErrorString(int code) { return code == kSuccess ? "success" : "not supported by the emulation"; }
