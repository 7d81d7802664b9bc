// The function tables of MUTANT_OF: their entries call the functions of a base plugin, with the mutation that the file
// name selects, as in shim.cc.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "conformance/mutants/mutant.h"
#include "harness/plugin/library.h"

#define PLUGFEST_EXPORT extern "C" __attribute__((visibility("default")))

namespace plugfest::mutants {

/// The path of the base plugin of an interface. The mesh plugin is in the parent folder of the mutants, a toy in
/// theirs.
inline std::string base_of(plugin::InterfaceKind kind) {
  if (kind == plugin::InterfaceKind::kRma || kind == plugin::InterfaceKind::kGin)
    return own_folder() + "../libnccl-net-mesh.so";
  return fmt::format("{}lib{}-toy.so", own_folder(), plugin::interface_of(kind).name);
}

/// A function table whose entries call the mutated functions. One object of each type.
template <plugin::InterfaceKind kKind, int kApi, std::size_t kSlots>
struct Table {
  const char* name = "Mutant";
  plugin::Library::AnyFunction slots[kSlots] = {};

  Table() {
    if (layout().size() != kSlots) std::abort();
    table = this;
    fill(std::make_index_sequence<kSlots>());
  }

 private:
  using Word = std::uint64_t;

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
    Calls* const calls = table->calls();
    Words words = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o};
    return calls == nullptr ? Result::kSystemError : calls->at(std::string(layout()[kSlot].name))(words);
  }

  // The mutated functions of the base plugin, made at the first call. They live until the process ends. Null, with a
  // line on stderr, when that fails; the next call tries again, as GI-33 demands.
  Calls* calls() {
    if (made.load(std::memory_order_acquire) == nullptr) {
      const std::lock_guard lock(mutex);
      if (made.load(std::memory_order_relaxed) == nullptr) made.store(make_calls(), std::memory_order_release);
    }
    return made.load(std::memory_order_acquire);
  }

  // Also sets the slots of the functions that exist.
  Calls* make_calls() {
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
  }

  // The object has only the members of the struct that it stands for.
  static inline std::atomic<Calls*> made{nullptr};
  static inline std::mutex mutex;
  static inline Table* table = nullptr;
  static inline plugin::Library::AnyFunction entries[kSlots] = {};
};

}  // namespace plugfest::mutants
