// The libraries of the mutants of MUTANT_OF, which apply the mutation that the file name selects, as shim.cc. One
// exports CollNet v12 and profiler v6, whose base plugins are libcollnet-toy.so and libprofiler-toy.so in its folder,
// and a net that only reports its devices, for rules that compare interfaces. With PLUGFEST_ONE_SIDED_SHIM it exports
// RMA v16, GIN v13 and the net, whose base plugin is libnccl-net-mesh.so in the parent folder. With
// PLUGFEST_TUNER_SHIM it exports tuner v6 only, whose base plugin is libtuner-toy.so in its folder.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

#include "conformance/mutants/mutant.h"
#include "harness/abi/net.h"
#include "harness/plugin/library.h"

namespace plugfest::mutants {
namespace {

using plugin::InterfaceKind;

using Word = std::uint64_t;

std::string base_of(InterfaceKind kind) {
  if (kind == InterfaceKind::kRma || kind == InterfaceKind::kGin) return own_folder() + "../libnccl-net-mesh.so";
  return fmt::format("{}lib{}-toy.so", own_folder(), plugin::interface_of(kind).name);
}

// A function table whose entries call the mutated functions. One object of each type.
template <InterfaceKind kKind, int kApi, std::size_t kSlots>
struct Table {
  const char* name = "Mutant";
  plugin::Library::AnyFunction slots[kSlots] = {};

  Table() {
    if (layout().size() != kSlots) std::abort();
    table = this;
    fill(std::make_index_sequence<kSlots>());
  }

 private:
  static std::span<const plugin::SlotLayout> layout() { return plugin::api_layout(kKind, kApi).slots; }

  template <std::size_t... kIndex>
  void fill(std::index_sequence<kIndex...>) {
    ((entries[kIndex] = reinterpret_cast<plugin::Library::AnyFunction>(&call<kIndex>)), ...);
    ((slots[kIndex] = layout()[kIndex].may_be_null ? nullptr : entries[kIndex]), ...);
  }

  // Callers pass fewer arguments; the rest is passed on and not used.
  template <std::size_t kSlot>
  static Result call(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k, Word l,
                     Word m, Word n, Word o) {
    static Calls* const calls = table->make_calls();
    Words words = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o};
    return calls == nullptr ? Result::kSystemError : calls->at(std::string(layout()[kSlot].name))(words);
  }

  // Makes the mutated functions of the base plugin, once, and sets the slots of those that exist. They
  // live until the process ends. Null, with a line on stderr, when that fails.
  Calls* make_calls() {
    static Calls* const made = [this]() -> Calls* {
      const Mutant* const mutant = selected_mutant();
      if (mutant == nullptr || mutant->mutate_calls == nullptr) return nullptr;
      auto& calls = kept<Calls>();
      try {
        // The library stays loaded.
        auto* const library = new plugin::Library(base_of(kKind), kApi, kKind);
        for (const plugin::SlotLayout& slot : layout()) {
          using Any =
              Result (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
          const auto function = reinterpret_cast<Any>(library->function(slot.name));
          if (function == nullptr) continue;
          calls[std::string(slot.name)] = [function](Words& w) {
            return function(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13],
                            w[14]);
          };
        }
      } catch (const plugin::LoadError& error) {
        std::fprintf(stderr, "mutant: the base plugin: %s\n", error.what());
        return nullptr;
      }
      if (mutant->interface == kKind) mutant->mutate_calls(calls);
      for (std::size_t slot = 0; slot < kSlots; ++slot)
        slots[slot] = calls.contains(std::string(layout()[slot].name)) ? entries[slot] : nullptr;
      return &calls;
    }();
    return made;
  }

  static inline Table* table = nullptr;
  static inline plugin::Library::AnyFunction entries[kSlots] = {};
};

// The net of the one-sided interfaces' base plugin; otherwise one whose device has the name of the CollNet toy's
// device.
[[maybe_unused]] abi::newest::Net make_net() {
#ifdef PLUGFEST_ONE_SIDED_SHIM
  void* const base = dlopen(base_of(InterfaceKind::kRma).c_str(), RTLD_NOW | RTLD_LOCAL);  // it stays loaded
  const void* const net = base == nullptr ? nullptr : dlsym(base, "ncclNetPlugin_v12");
  return net == nullptr ? abi::newest::Net() : *static_cast<const abi::newest::Net*>(net);
#else
  abi::newest::Net net = {};
  net.name = "Mutant";
  net.init = [](auto...) { return Result::kSuccess; };
  net.devices = [](int* count) {
    *count = 1;
    return Result::kSuccess;
  };
  net.getProperties = [](int, abi::newest::Properties* properties) {
    *properties = {};
    properties->name = "toy0";
    return Result::kSuccess;
  };
  net.finalize = [](void*) { return Result::kSuccess; };
  return net;
#endif
}

}  // namespace
}  // namespace plugfest::mutants

#define PLUGFEST_EXPORT extern "C" __attribute__((visibility("default")))
#ifdef PLUGFEST_TUNER_SHIM
using TunerTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kTuner, 6, 4>;
PLUGFEST_EXPORT TunerTable ncclTunerPlugin_v6;
TunerTable ncclTunerPlugin_v6;
#else
PLUGFEST_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::make_net();
#ifdef PLUGFEST_ONE_SIDED_SHIM
using RmaTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kRma, 16, 21>;
PLUGFEST_EXPORT RmaTable ncclRmaPlugin_v16;
RmaTable ncclRmaPlugin_v16;
using GinTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kGin, 13, 20>;
PLUGFEST_EXPORT GinTable ncclGinPlugin_v13;
GinTable ncclGinPlugin_v13;
#else
using CollNetTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kCollNet, 12, 18>;
using ProfilerTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kProfiler, 6, 5>;
PLUGFEST_EXPORT CollNetTable ncclCollNetPlugin_v12;
PLUGFEST_EXPORT ProfilerTable ncclProfiler_v6;
CollNetTable ncclCollNetPlugin_v12;
ProfilerTable ncclProfiler_v6;
#endif
#endif
