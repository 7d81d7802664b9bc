// Tables of the function slots and property fields of each net interface version.
//
// Rules use them to name single members ("forceFlush was not written") of a version that is chosen at run time.
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
  /// Core checks the pointer before each use.
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
  /// i for "vProps.devs[i]", which need not be written when i >= ndevs; else -1.
  int member = -1;
};

/// One version. Source: NCCL's public headers; harness/abi.
struct ApiLayout {
  int api;
  /// "ncclNetPlugin_v8"; NUL-terminated.
  std::string_view symbol;
  /// Size in bytes of the function table, which begins with `const char* name`.
  std::size_t net_size;
  std::span<const SlotLayout> slots;
  /// Size in bytes of the properties structure with its padding.
  std::size_t properties_size;
  std::span<const FieldLayout> properties;
};

/// Errors: `api` outside of kOldestApi..kNewestApi is a programming error (assert).
const ApiLayout& api_layout(int api);

/// Size in bytes of the largest properties structure.
inline constexpr std::size_t kMaxPropertiesSize = 128;

}  // namespace plugfest::plugin
