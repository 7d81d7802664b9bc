// The plugin interfaces as data: symbols, function slots, parameters, property fields.
//
// Rules use these tables to name single members ("forceFlush was not written") of a version selected at run time. Ranks
// and harness/control use them to make calls of any interface (wire::Call).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "harness/abi/net.h"

namespace plugfest::plugin {

/// The interfaces for which a library may export symbols.
enum class InterfaceKind : std::uint8_t { kNet, kCollNet, kGin, kRma, kProfiler, kTuner, kEnv };
inline constexpr std::size_t kInterfaceKinds = 7;

/// Whether the interface connects one device of each rank to one of each other rank: CollNet, GIN and RMA. NCCL
/// initializes the net of their library first. Source: init.cc: commAlloc; plugin/net.cc: ncclNetPluginInit.
constexpr bool connects_all_ranks(InterfaceKind kind) {
  return kind == InterfaceKind::kCollNet || kind == InterfaceKind::kGin || kind == InterfaceKind::kRma;
}

/// One interface. Without versions, Plugfest recognizes its symbols but cannot call it.
struct Interface {
  InterfaceKind kind;
  /// The name on the command line, "collnet", and in sentences: "CollNet".
  std::string_view name;
  std::string_view title;
  /// The symbol without the version's number: "ncclCollNetPlugin_v".
  std::string_view symbol_prefix;
  /// The range of versions that Plugfest knows: 6, 12. 0, 0: none.
  int oldest = 0;
  int newest = 0;
};

/// All interfaces, the net first.
std::span<const Interface> interfaces();
const Interface& interface_of(InterfaceKind kind);

/// The versions of the net that Plugfest knows.
inline constexpr int kOldestApi = abi::kOldestNet;
inline constexpr int kNewestApi = abi::kNewestNet;

/// The functions of the newest net interface, in its order.
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

/// The kind of an argument, which determines its storage, its guards and its content.
enum class Shape : std::uint8_t {
  kNumber,      ///< an integer, or a pointer that the plugin has stored before
  kLogger,      ///< NCCL's logger
  kProfiler,    ///< NCCL's profiler callback, or NULL for 0
  kText,        ///< a text that the plugin may only read
  kBytes,       ///< a structure or an array that the plugin may only read
  kInts,        ///< an array, or a structure, of ints that the plugin may only read
  kWords,       ///< an array of pointers or of size_t that the plugin may only read
  kHandles,     ///< an array of pointers to handles, all of which the plugin may only read
  kAttempt,     ///< for connect and accept: handle, comm pointer and device handle keep their addresses between calls
  kHandle,      ///< the 128 bytes of a handle, which the plugin writes
  kOutPointer,  ///< the plugin stores a pointer in it, or NULL
  kOutInt,      ///< the plugin stores an int in it, or NULL
  kOutBool,     ///< the plugin stores a bool in it
  kOutSizes,    ///< the array of 64 ints that test fills, or NULL
  kProperties,  ///< the version's properties structure, which the plugin writes
  kInOut,       ///< a structure or an array that the plugin reads and may change; NULL without content
};

/// Whether the plugin writes the argument.
constexpr bool is_output(Shape shape) { return shape >= Shape::kHandle; }

struct Parameter {
  /// The name in NCCL's headers: "listenComm".
  std::string_view name;
  Shape shape = Shape::kNumber;
  /// The object that the call opens outlives this one: a communicator its listener.
  bool outlived = false;
  /// An int that is one variable of the process, as in NCCL, and that the plugin may write at any time later.
  bool lasting = false;
};

struct SlotLayout {
  /// The function of the net; for other interfaces its index.
  Slot slot;
  /// The name in NCCL's headers: "regMrDmaBuf".
  std::string_view name;
  std::size_t offset;
  /// NCCL checks the pointer before each use.
  bool may_be_null;
  /// NCCL's thread that makes the call: "svc".
  std::string_view thread = {};
  /// The function that closes the object that the call opens: "closeListen". Its last parameter is the first pointer
  /// that this call stored; its others have the names of parameters of this call.
  std::string_view closed_by = {};
  /// For the net, the parameters of the newest version, because all calls are made through plugin::Net.
  std::span<const Parameter> parameters = {};
  /// The function returns a text instead of a result code.
  bool returns_text = false;
};

enum class FieldKind : std::uint8_t { kString, kInt, kInt16, kUint64, kFloat, kSize };

/// One member of a properties structure, or one element of `vProps.devs`.
struct FieldLayout {
  /// The name in NCCL's headers: "maxP2pBytes", "vProps.ndevs", "vProps.devs[2]".
  std::string_view name;
  std::size_t offset;
  std::size_t size;
  FieldKind kind;
  /// i for "vProps.devs[i]", which a plugin may leave unwritten when i >= ndevs; otherwise -1.
  int member = -1;
};

/// One version. Source: NCCL's public headers; harness/abi.
struct ApiLayout {
  InterfaceKind kind;
  int api;
  /// "ncclNetPlugin_v8"; NUL-terminated.
  std::string_view symbol;
  /// Size in bytes of the function table, which begins with `const char* name`.
  std::size_t table_size;
  std::span<const SlotLayout> slots;
  /// Size in bytes of the properties structure with its padding; 0 if there is none.
  std::size_t properties_size;
  std::span<const FieldLayout> properties;

  /// Null if the version has no such function.
  const SlotLayout* find(std::string_view function) const;
};

/// Errors: std::logic_error for an `api` that Interface does not list.
const ApiLayout& api_layout(InterfaceKind kind, int api);
inline const ApiLayout& api_layout(int api) { return api_layout(InterfaceKind::kNet, api); }

/// Size in bytes of the largest properties structure.
inline constexpr std::size_t kMaxPropertiesSize = 128;

}  // namespace plugfest::plugin
