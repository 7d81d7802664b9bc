// Generates the tables of layout.h from the structures in harness/abi.
#include "harness/plugin/layout.h"

#include <array>
#include <cassert>
#include <type_traits>

#include "harness/abi/net_v12.h"
#include "harness/abi/net_v6.h"
#include "harness/abi/net_v7.h"
#include "harness/abi/net_v8.h"

namespace plugfest::plugin {
namespace {

template <typename Entry, std::size_t kRoom>
struct Table {
  std::array<Entry, kRoom> entries{};
  std::size_t count = 0;
  constexpr void add(Entry entry) { entries[count++] = entry; }
  constexpr std::span<const Entry> span() const { return {entries.data(), count}; }
};

template <typename T>
consteval FieldKind kind_of() {
  if constexpr (std::is_pointer_v<T>) return FieldKind::kString;
  if constexpr (std::is_same_v<T, float>) return FieldKind::kFloat;
  if constexpr (std::is_same_v<T, std::int16_t>) return FieldKind::kInt16;
  if constexpr (std::is_same_v<T, int>) return FieldKind::kInt;
  // uint64_t and size_t are one type on LP64: field_table sets kUint64 by name.
  return FieldKind::kSize;
}

#define ADD_FIELD(member)                    \
  if constexpr (requires(P p) { p.member; }) \
  table.add({#member, offsetof(P, member), sizeof(P::member), kind_of<decltype(P::member)>()})

template <typename P>
consteval auto field_table() {
  Table<FieldLayout, 32> table;
  ADD_FIELD(name);
  ADD_FIELD(pciPath);
  table.add({"guid", offsetof(P, guid), sizeof(P::guid), FieldKind::kUint64});
  ADD_FIELD(ptrSupport);
  ADD_FIELD(regIsGlobal);
  ADD_FIELD(forceFlush);
  ADD_FIELD(speed);
  ADD_FIELD(port);
  ADD_FIELD(latency);
  ADD_FIELD(maxComms);
  ADD_FIELD(maxRecvs);
  ADD_FIELD(netDeviceType);
  ADD_FIELD(netDeviceVersion);
  if constexpr (requires(P p) { p.vProps; }) {
    using VDevice = decltype(P::vProps);
    constexpr std::string_view kNames[] = {"vProps.devs[0]", "vProps.devs[1]", "vProps.devs[2]", "vProps.devs[3]",
                                           "vProps.devs[4]", "vProps.devs[5]", "vProps.devs[6]", "vProps.devs[7]"};
    constexpr std::size_t kBase = offsetof(P, vProps);
    table.add({"vProps.ndevs", kBase + offsetof(VDevice, ndevs), sizeof(int), FieldKind::kInt});
    for (std::size_t i = 0; i < std::extent_v<decltype(VDevice::devs)>; ++i)
      table.add({kNames[i], kBase + offsetof(VDevice, devs) + i * sizeof(int), sizeof(int), FieldKind::kInt,
                 static_cast<int>(i)});
  }
  ADD_FIELD(maxP2pBytes);
  ADD_FIELD(maxCollBytes);
  ADD_FIELD(maxMultiRequestSize);
  ADD_FIELD(railId);
  ADD_FIELD(planeId);
  return table;
}

#define ADD_SLOT(slot, member, may_be_null) \
  if constexpr (requires(N n) { n.member; }) table.add({Slot::slot, #member, offsetof(N, member), may_be_null})

template <typename N>
consteval auto slot_table() {
  Table<SlotLayout, 21> table;
  ADD_SLOT(kInit, init, false);
  ADD_SLOT(kDevices, devices, false);
  ADD_SLOT(kGetProperties, getProperties, false);
  ADD_SLOT(kListen, listen, false);
  ADD_SLOT(kConnect, connect, false);
  ADD_SLOT(kAccept, accept, false);
  ADD_SLOT(kRegMr, regMr, false);
  ADD_SLOT(kRegMrDmaBuf, regMrDmaBuf, true);
  ADD_SLOT(kDeregMr, deregMr, false);
  ADD_SLOT(kIsend, isend, false);
  ADD_SLOT(kIrecv, irecv, false);
  ADD_SLOT(kIflush, iflush, false);
  ADD_SLOT(kTest, test, false);
  ADD_SLOT(kCloseSend, closeSend, false);
  ADD_SLOT(kCloseRecv, closeRecv, false);
  ADD_SLOT(kCloseListen, closeListen, false);
  ADD_SLOT(kGetDeviceMr, getDeviceMr, true);
  ADD_SLOT(kIrecvConsumed, irecvConsumed, true);
  ADD_SLOT(kMakeVDevice, makeVDevice, true);
  ADD_SLOT(kFinalize, finalize, false);
  ADD_SLOT(kSetNetAttr, setNetAttr, true);
  return table;
}

template <typename N>
constexpr auto kSlots = slot_table<N>();
template <typename P>
constexpr auto kFields = field_table<P>();

template <typename N, typename P>
constexpr ApiLayout layout(int api, std::string_view symbol) {
  static_assert(sizeof(P) <= kMaxPropertiesSize);
  return {.api = api,
          .symbol = symbol,
          .net_size = sizeof(N),
          .slots = kSlots<N>.span(),
          .properties_size = sizeof(P),
          .properties = kFields<P>.span()};
}

constexpr ApiLayout kLayouts[] = {
    layout<abi::v6::Net, abi::v6::Properties>(6, "ncclNetPlugin_v6"),
    layout<abi::v7::Net, abi::v7::Properties>(7, "ncclNetPlugin_v7"),
    layout<abi::v8::Net, abi::v8::Properties>(8, "ncclNetPlugin_v8"),
    layout<abi::v9::Net, abi::v9::Properties>(9, "ncclNetPlugin_v9"),
    layout<abi::v10::Net, abi::v10::Properties>(10, "ncclNetPlugin_v10"),
    layout<abi::v11::Net, abi::v11::Properties>(11, "ncclNetPlugin_v11"),
    layout<abi::v12::Net, abi::v12::Properties>(12, "ncclNetPlugin_v12"),
};

}  // namespace

const ApiLayout& api_layout(int api) {
  assert(kOldestApi <= api && api <= kNewestApi);
  return kLayouts[api - kOldestApi];
}

}  // namespace plugfest::plugin
