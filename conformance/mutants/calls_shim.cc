// The library of the mutants of MUTANT_OF: exports CollNet v12 and profiler v6, and applies the mutation that its file
// name selects, as shim.cc. The base plugins are libcollnet-toy.so and libprofiler-toy.so in its folder. It also
// exports a net that only says which devices it has, for rules that compare interfaces.
#include <cstddef>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "conformance/mutants/calls.h"
#include "conformance/mutants/mutant.h"
#include "conformance/mutants/own_file.h"
#include "harness/abi/net.h"
#include "harness/plugin/library.h"

namespace plugfest::mutants {
namespace {

using plugin::InterfaceKind;

/// A function table whose entries call what a mutation has replaced.
template <InterfaceKind kKind, int kApi, std::size_t kSlots>
struct Table {
  const char* name = "Mutant";
  plugin::Library::AnyFunction slots[kSlots] = {};

  Table() { fill(std::make_index_sequence<kSlots>()); }

  /// The base plugin and the mutated functions. Lives until the process ends. Null, with a line on stderr, when that
  /// cannot be made.
  struct Base {
    std::unique_ptr<plugin::Library> library;
    Calls calls;
  };
  Base* base() {
    static Base* const made = make();
    return made;
  }

 private:
  static std::span<const plugin::SlotLayout> layout() { return plugin::api_layout(kKind, kApi).slots; }

  template <std::size_t kSlot>
  static abi::Result call(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d, std::uint64_t e,
                          std::uint64_t f, std::uint64_t g, std::uint64_t h, std::uint64_t i, std::uint64_t j,
                          std::uint64_t k);

  template <std::size_t... kIndex>
  void fill(std::index_sequence<kIndex...>) {
    ((slots[kIndex] =
          layout()[kIndex].may_be_null ? nullptr : reinterpret_cast<plugin::Library::AnyFunction>(&call<kIndex>)),
     ...);
  }

  Base* make() {
    const std::string own = own_path();
    const Mutant* const mutant = find_mutant(mutant_name(own));
    if (mutant == nullptr || mutant->mutate_calls == nullptr) return nullptr;
    auto* const made = new Base;
    const std::string toy = std::string(plugin::interface_of(kKind).name);
    try {
      made->library =
          std::make_unique<plugin::Library>(own.substr(0, own.rfind('/') + 1) + "lib" + toy + "-toy.so", kApi, kKind);
    } catch (const plugin::LoadError& error) {
      std::fprintf(stderr, "mutant: the base plugin: %s\n", error.what());
      return nullptr;
    }
    for (const plugin::SlotLayout& slot : layout()) {
      const auto function = made->library->function(slot.name);
      if (function == nullptr) continue;
      made->calls[std::string(slot.name)] = [function](Words& w) {
        using Any =
            abi::Result (*)(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                            std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t);
        return reinterpret_cast<Any>(function)(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10]);
      };
    }
    if (mutant->interface == kKind) mutant->mutate_calls(made->calls);
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      if (!made->calls.contains(std::string(layout()[slot].name))) slots[slot] = nullptr;
    }
    return made;
  }
};

// The net. Its device has the name of the CollNet toy's.
abi::newest::Net make_net() {
  abi::newest::Net net = {};
  net.name = "Mutant";
  net.init = [](auto...) { return abi::Result::kSuccess; };
  net.devices = [](int* count) {
    *count = 1;
    return abi::Result::kSuccess;
  };
  net.getProperties = [](int, abi::newest::Properties* properties) {
    *properties = {};
    properties->name = "toy0";
    return abi::Result::kSuccess;
  };
  net.finalize = [](void*) { return abi::Result::kSuccess; };
  return net;
}

Table<InterfaceKind::kCollNet, 12, 18>& coll_net();
Table<InterfaceKind::kProfiler, 6, 5>& profiler();

template <InterfaceKind kKind, int kApi, std::size_t kSlots>
template <std::size_t kSlot>
abi::Result Table<kKind, kApi, kSlots>::call(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d,
                                             std::uint64_t e, std::uint64_t f, std::uint64_t g, std::uint64_t h,
                                             std::uint64_t i, std::uint64_t j, std::uint64_t k) {
  const auto table = [] {
    if constexpr (kKind == InterfaceKind::kCollNet) {
      return &coll_net();
    } else {
      return &profiler();
    }
  }();
  // Callers pass fewer arguments; what the rest reads is passed on and not used.
  Words words = {a, b, c, d, e, f, g, h, i, j, k};
  auto* const base = table->base();
  return base == nullptr ? abi::Result::kSystemError : base->calls.at(std::string(layout()[kSlot].name))(words);
}

}  // namespace
}  // namespace plugfest::mutants

#define PLUGFEST_EXPORT extern "C" __attribute__((visibility("default")))
using CollNetTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kCollNet, 12, 18>;
using ProfilerTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kProfiler, 6, 5>;
PLUGFEST_EXPORT CollNetTable ncclCollNetPlugin_v12;
PLUGFEST_EXPORT ProfilerTable ncclProfiler_v6;
PLUGFEST_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
CollNetTable ncclCollNetPlugin_v12;
ProfilerTable ncclProfiler_v6;
plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::make_net();

namespace plugfest::mutants {
namespace {
CollNetTable& coll_net() { return ncclCollNetPlugin_v12; }
ProfilerTable& profiler() { return ncclProfiler_v6; }
}  // namespace
}  // namespace plugfest::mutants
