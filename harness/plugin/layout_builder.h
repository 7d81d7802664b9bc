// Generates the tables of layout.h from the structures in harness/abi while the program is compiled.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>

#include "harness/abi/net.h"
#include "harness/abi/one_sided.h"
#include "harness/plugin/layout.h"

namespace plugfest::plugin {

template <typename Entry, std::size_t kRoom>
struct Table {
  std::array<Entry, kRoom> entries{};
  std::size_t count = 0;
  constexpr void add(Entry entry) { entries[count++] = entry; }
  constexpr std::span<const Entry> span() const { return {entries.data(), count}; }
};

template <typename T>
consteval FieldKind kind_of(std::string_view name) {
  // uint64_t and size_t are one type on LP64.
  if (name == "guid") return FieldKind::kUint64;
  if (std::is_pointer_v<T>) return FieldKind::kString;
  if (std::is_same_v<T, float>) return FieldKind::kFloat;
  if (std::is_same_v<T, std::int16_t>) return FieldKind::kInt16;
  return std::is_same_v<T, int> ? FieldKind::kInt : FieldKind::kSize;
}

template <typename P>
consteval auto field_table() {
  Table<FieldLayout, 32> table;
#define ADD_FIELD(member)                    \
  if constexpr (requires(P p) { p.member; }) \
    table.add({#member, offsetof(P, member), sizeof(P::member), kind_of<decltype(P::member)>(#member)});
  PLUGFEST_NET_PROPERTY_NAMES(ADD_FIELD)
#undef ADD_FIELD
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
  std::sort(table.entries.begin(), table.entries.begin() + table.count,
            [](const FieldLayout& a, const FieldLayout& b) { return a.offset < b.offset; });
  return table;
}

// Functions of an interface, and their parameters.
template <std::size_t kRoom>
struct Functions {
  Table<SlotLayout, kRoom> slots;
  Table<Parameter, kRoom * 15> parameters;
  // Index in `parameters` of the first one of each slot, and of the end.
  std::array<std::size_t, kRoom + 1> first{};

  constexpr Functions with_spans(const Functions& at) const {
    Functions result = *this;
    for (std::size_t i = 0; i < slots.count; ++i)
      result.slots.entries[i].parameters = at.parameters.span().subspan(first[i], first[i + 1] - first[i]);
    return result;
  }
};

template <typename A>
constexpr bool fits(Shape shape) {
  switch (shape) {
    case Shape::kNumber:
      return std::is_integral_v<A> || std::is_same_v<A, void*>;
    case Shape::kLogger:
      return std::is_same_v<A, abi::Logger>;
    case Shape::kProfiler:
      return std::is_same_v<A, abi::ProfilerCallback>;
    case Shape::kText:
      return std::is_same_v<A, const char*>;
    case Shape::kWords:
      return std::is_same_v<A, void**> || std::is_same_v<A, std::size_t*>;
    case Shape::kHandles:
      return std::is_same_v<A, void**>;
    case Shape::kOutPointer:
      return std::is_same_v<A, void**> || std::is_same_v<A, abi::DeviceHandle**>;
    case Shape::kOutBool:
      return std::is_same_v<A, bool*> || std::is_same_v<A, abi::RmaProperties*>;
    case Shape::kHandle:
      return std::is_same_v<A, void*>;
    case Shape::kOutInt:
    case Shape::kOutSizes:
      return std::is_same_v<A, int*>;
    case Shape::kAttempt:
    case Shape::kBytes:
    case Shape::kInts:
    case Shape::kProperties:
    case Shape::kInOut:
      return std::is_pointer_v<A>;
  }
  return false;
}

// Adds a function with its parameters. Older versions have only the last of them. Does not compile unless the type of
// each parameter matches its shape.
template <std::size_t kRoom, typename Result, typename... A>
constexpr void add_function(Functions<kRoom>& functions, Result (*const*)(A...), SlotLayout slot,
                            std::initializer_list<Parameter> parameters) {
  slot.returns_text = std::is_same_v<Result, const char*>;
  static_assert(std::is_same_v<Result, const char*> || std::is_same_v<Result, abi::Result>);
  const Parameter* next = parameters.end() - sizeof...(A);
  functions.first[functions.slots.count] = functions.parameters.count;
  [[maybe_unused]] const auto add = [&](bool fits) {
    if (!fits) throw "the type of a parameter does not match its shape";
    functions.parameters.add(*next++);
  };
  (add(fits<A>(next->shape)), ...);
  slot.slot = static_cast<Slot>(functions.slots.count);
  functions.slots.add(slot);
  functions.first[functions.slots.count] = functions.parameters.count;
}

// Two objects of one function: spans of the second refer to the parameters of the first.
template <auto kMake>
constexpr auto kParametersOf = kMake();
template <auto kMake>
constexpr auto kFunctionsOf = kParametersOf<kMake>.with_spans(kParametersOf<kMake>);

template <typename P>
constexpr auto kFields = field_table<P>();

// `T`: the function table. `P`: the properties, if there are any.
template <typename T, auto kMake, typename P = void>
constexpr ApiLayout layout(InterfaceKind kind, int api, std::string_view symbol) {
  ApiLayout layout{.kind = kind,
                   .api = api,
                   .symbol = symbol,
                   .table_size = sizeof(T),
                   .slots = kFunctionsOf<kMake>.slots.span(),
                   .properties_size = 0,
                   .properties = {}};
  if constexpr (!std::is_void_v<P>) {
    static_assert(sizeof(P) <= kMaxPropertiesSize);
    layout.properties_size = sizeof(P);
    layout.properties = kFields<P>.span();
  }
  return layout;
}

}  // namespace plugfest::plugin
