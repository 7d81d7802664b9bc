// The structures of each net interface version as tables: which slots, which property fields, where.
//
// Rules use them to speak of single members ("forceFlush was not written") of a version picked at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace plugfest::plugin {

/// The versions that Plugfest knows.
inline constexpr int kOldestApi = 6;
inline constexpr int kNewestApi = 12;

/// The functions of the newest interface, in its order.
enum class Slot : std::uint8_t {
  kInit,
  kDevices,
  kGetProperties,
  kListen,
  kConnect,
  kAccept,
  kRegMr,
  kRegMrDmaBuf,
  kDeregMr,
  kIsend,
  kIrecv,
  kIflush,
  kTest,
  kCloseSend,
  kCloseRecv,
  kCloseListen,
  kGetDeviceMr,
  kIrecvConsumed,
  kMakeVDevice,
  kFinalize,
  kSetNetAttr,
};

struct SlotLayout {
  Slot slot;
  /// As in NCCL's headers: "regMrDmaBuf".
  std::string_view name;
  std::size_t offset;
  /// Core tests the pointer before each use.
  bool may_be_null;
};

enum class FieldKind : std::uint8_t { kString, kInt, kInt16, kUint64, kFloat, kSize };

/// One member of a properties structure, or one element of `vProps.devs`.
struct FieldLayout {
  /// As in NCCL's headers: "maxP2pBytes", "vProps.ndevs", "vProps.devs[2]".
  std::string_view name;
  std::size_t offset;
  std::size_t size;
  FieldKind kind;
  /// i for "vProps.devs[i]" (need not be written when i >= ndevs), else -1.
  int member = -1;
};

/// Static facts of one version. Source: NCCL's public headers; harness/abi.
struct ApiLayout {
  int api;
  /// "ncclNetPlugin_v8"; NUL-terminated.
  std::string_view symbol;
  /// Bytes of the function table, which begins with `const char* name`.
  std::size_t net_size;
  std::span<const SlotLayout> slots;
  /// Bytes of the properties structure, padding included.
  std::size_t properties_size;
  std::span<const FieldLayout> properties;
};

/// Errors: `api` outside of kOldestApi..kNewestApi is a programming error (assert).
const ApiLayout& api_layout(int api);

/// Bytes that hold the properties of any version.
inline constexpr std::size_t kMaxPropertiesSize = 128;

}  // namespace plugfest::plugin
