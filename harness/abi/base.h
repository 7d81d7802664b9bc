// Shared by all versions of NCCL's plugin interfaces: result codes, log levels, callbacks, constants, device handle.
//
// Structure members have the names of NCCL's ABI. Layouts are for LP64 systems and asserted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plugfest::abi {

static_assert(sizeof(void*) == 8 && sizeof(std::size_t) == 8 && sizeof(int) == 4,
              "these layouts are only for LP64 systems");

/// `ncclResult_t`. A plugin may return a value outside these names; it is kept unchanged.
enum class Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

/// Levels of `ncclDebugLogLevel`.
enum LogLevel : int { kLogNone = 0, kLogVersion = 1, kLogWarn = 2, kLogInfo = 3, kLogAbort = 4, kLogTrace = 5 };

/// Bits of `ncclDebugLogSubSys`.
enum LogSubsystem : unsigned long {
  kLogInit = 0x1,
  kLogColl = 0x2,
  kLogP2p = 0x4,
  kLogShm = 0x8,
  kLogNet = 0x10,
  kLogGraph = 0x20,
  kLogTuning = 0x40,
  kLogEnv = 0x80,
  kLogAlloc = 0x100,
  kLogCall = 0x200,
  kLogProxy = 0x400,
  kLogNvls = 0x800,
  kLogBootstrap = 0x1000,
  kLogReg = 0x2000,
  kLogProfile = 0x4000,
  kLogRas = 0x8000,
};

/// `ncclDebugLogger_t`: printf arguments follow `format`. May be called from any thread.
using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line, const char* format, ...);

/// Events that a net plugin reports to the profiler; `type` of `ProfilerCallback`.
enum ProfilerNetEvent : int {
  kProfilerNetStart = 0,
  kProfilerNetStop = 1,
  kProfilerNetUpdate = 2,
  kProfilerNetUpdateAndStop = 3,
};

/// `ncclProfilerCallback_t` (v10 and later). May be null.
using ProfilerCallback = Result (*)(void** event_handle, int type, void* parent_handle, std::int64_t plugin_id,
                                    void* ext_data);

/// Kinds of memory: bits of `ptrSupport`, and the `type` of a registration.
enum PointerKind : int { kPointerHost = 0x1, kPointerCuda = 0x2, kPointerDmaBuf = 0x4 };

/// `ncclNetDeviceType`, an enum of int size in structures.
enum DeviceType : int {
  kDeviceHost = 0,
  kDeviceUnpack = 1,
  kDeviceGinProxy = 2,
  kDeviceGinGdaki = 3,
  kDeviceGinGpi = 4,
  kDeviceGinEfaGda = 5,
};
inline constexpr int kDeviceUnpackVersion = 0x7;
inline constexpr int kDeviceInvalidVersion = 0x0;

/// Bytes of a connection handle, v5 and later.
inline constexpr std::size_t kHandleBytes = 128;
/// `NCCL_NET_MAX_REQUESTS`: outstanding requests per comm in the headers of v6, and of v7 and later.
inline constexpr int kMaxRequestsV6 = 8;
inline constexpr int kMaxRequests = 32;
/// `NCCL_STEPS`: requests that one sub-operation of NCCL has outstanding.
inline constexpr int kSteps = 8;
/// `NCCL_PROXY_MAX_SUBS`: buffers of one receive.
inline constexpr int kMaxReceiveBuffers = 64;
/// The largest `maxP2pBytes` and `maxCollBytes` that NCCL accepts: 1 TiB.
inline constexpr std::size_t kMaxNetSizeBytes = std::size_t{1} << 40;
/// NCCL's limit on transfers of v6 to v8 plugins: 1 GiB; and on their collectives: 512 MiB.
inline constexpr std::size_t kMaxShimP2pBytes = std::size_t{1} << 30;
inline constexpr std::size_t kMaxShimCollBytes = std::size_t{1} << 29;
/// Maximum number of devices in NCCL.
inline constexpr int kMaxNetDevices = 128;
/// Members of a virtual device: v9 to v11, and v12.
inline constexpr int kMaxVDeviceMembersV9 = 4;
inline constexpr int kMaxVDeviceMembersV12 = 8;
/// "Not set" in `trafficClass`, in `NetAttr` and in `railId`, `planeId`.
inline constexpr int kTrafficClassUndefined = -1;
inline constexpr int kAttrUndefined = -1;
inline constexpr std::int16_t kIdUndefined = -1;
/// `NCCL_NET_OPTIONAL_RECV_COMPLETION`: value of `*request` before an irecv whose completion NCCL may ignore (v9 and
/// later).
inline constexpr std::uintptr_t kOptionalRecvCompletion = 0x1;

/// `ncclNetDeviceHandle_v7_t` to `_v12_t`: device offload of one connection.
struct DeviceHandle {
  int netDeviceType;
  int netDeviceVersion;
  void* handle;
  std::size_t size;
  int needsProxyProgress;
};
static_assert(sizeof(DeviceHandle) == 32);
static_assert(offsetof(DeviceHandle, handle) == 8 && offsetof(DeviceHandle, needsProxyProgress) == 24);

}  // namespace plugfest::abi
