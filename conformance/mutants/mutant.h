// A mutant: a correct base plugin with one change that breaks rules. All rules that it declares must catch it, and no
// other rule may.
//
//   // Waits in connect until the peer has accepted.
//   MUTANT(connect_waits_for_accept, breaks("CN-06", "CN-09")) {
//     net.connect = [&good](void* context, int device, void* handle, void** comm) {
//       Result result;
//       do {
//         result = good.connect(context, device, handle, comm);
//       } while (result == Result::kSuccess && *comm == nullptr);
//       return result;
//     };
//   }
//
// All mutations are linked into one library (shim.cc), which applies the one that its own file name selects. Programs
// load that library to list the mutants (kill.h), so that no program has to be linked with them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/mutants/calls.h"
#include "conformance/mutants/net_functions.h"

namespace plugfest::mutants {

struct Mutant {
  /// "connect_waits_for_accept"; its library is libnccl-net-<name>.so.
  std::string name;
  /// Rules that catch it, each of them. Empty for a variant, which every rule must pass.
  std::vector<std::string> breaks;
  /// Other rules that may fail, since the fault unavoidably shows there too, but not in every run: ids and globs.
  std::vector<std::string> may_break = {};
  /// Why no other rules are drawn for it by day: which of them fail is not known. Empty: they are drawn.
  std::string not_drawn = {};
  /// The net version under which it runs; 0: the newest.
  int api = 0;
  /// Its fault is so rare that no rule catches it, but plugfest fuzz does.
  bool only_fuzz = false;
  /// It starts only where a GPU is: its ranks have the emulated one.
  bool emulate_gpu = false;
  /// The names of its devices do not tell their interfaces: they are found out as plugfest run does.
  bool match_devices = false;
  /// Its functions refuse all calls: only the rules that it declares run on it.
  bool refuses_calls = false;
  /// Null for mutants with a source in ld/ or tcp/, and for those of another interface.
  void (*mutate)(Net& net, const Net& good) = nullptr;
  plugin::InterfaceKind interface = plugin::InterfaceKind::kNet;
  /// For other interfaces than the net.
  void (*mutate_calls)(Calls& calls) = nullptr;

  bool is_variant() const { return breaks.empty() && !only_fuzz; }
  /// A copy that may also break other rules: breaks("XF-01").also("MR-05", "TH-*").
  template <typename... Rules>
  Mutant also(Rules... rules) const {
    Mutant mutant = *this;
    mutant.may_break = {rules...};
    return mutant;
  }
  /// A copy for which no other rules are drawn. `reason`: "not yet run against all rules".
  Mutant without_draw(std::string reason) const {
    Mutant mutant = *this;
    mutant.not_drawn = std::move(reason);
    return mutant;
  }
  /// A copy whose ranks have the emulated GPU.
  Mutant with_emulated_gpu() const {
    Mutant mutant = *this;
    mutant.emulate_gpu = true;
    return mutant;
  }
  /// A copy whose devices are matched to interfaces by more than their names.
  Mutant with_devices_matched() const {
    Mutant mutant = *this;
    mutant.match_devices = true;
    return mutant;
  }
  /// A copy whose functions refuse all calls.
  Mutant refusing_calls() const {
    Mutant mutant = *this;
    mutant.refuses_calls = true;
    return mutant;
  }
  /// A copy that runs under net version `version`.
  Mutant as_v(int version) const {
    Mutant mutant = *this;
    mutant.api = version;
    return mutant;
  }
};

/// A mutant without name and mutation, which MUTANT adds.
template <typename... Rules>
Mutant breaks(Rules... rules) {
  return {.name = {}, .breaks = {rules...}};
}

/// A mutant that only plugfest fuzz catches.
inline Mutant only_fuzz_finds() { return {.name = {}, .breaks = {}, .only_fuzz = true}; }

/// The mutants and variants that are linked into this library, sorted by name.
const std::vector<Mutant>& mutants();
/// Null when there is none.
const Mutant* find_mutant(std::string_view name);

/// Adds to `mutants()` during static initialisation.
struct MutantDeclaration {
  MutantDeclaration(std::string_view name, Mutant mutant, void (*mutate)(Net& net, const Net& good));
  MutantDeclaration(std::string_view name, plugin::InterfaceKind interface, Mutant mutant,
                    void (*mutate)(Calls& calls));
};

}  // namespace plugfest::mutants

/// `breaks_what`: breaks("CN-06"), breaks("CN-06").also("CN-09"), or breaks("IN-03").as_v(10). The body replaces
/// functions of `net`. `good`, the functions of the base plugin, lives as long as `net`.
#define MUTANT(name, breaks_what)                                                                             \
  static void mutate_##name(::plugfest::mutants::Net& net, const ::plugfest::mutants::Net& good);             \
  static const ::plugfest::mutants::MutantDeclaration declare_##name{#name, ::plugfest::mutants::breaks_what, \
                                                                     mutate_##name};                          \
  static void mutate_##name([[maybe_unused]] ::plugfest::mutants::Net& net,                                   \
                            [[maybe_unused]] const ::plugfest::mutants::Net& good)

/// A mutant of another interface: MUTANT_OF(no_name, kCollNet, breaks("CO-20")) { calls["getProperties"] = …; }
#define MUTANT_OF(name, interface, breaks_what)                                                              \
  static void mutate_##name(::plugfest::mutants::Calls& calls);                                              \
  static const ::plugfest::mutants::MutantDeclaration declare_##name{                                        \
      #name, ::plugfest::plugin::InterfaceKind::interface, ::plugfest::mutants::breaks_what, mutate_##name}; \
  static void mutate_##name(::plugfest::mutants::Calls& calls)

/// A variant: a plugin that differs from the base plugin in a way that the contract allows. With settings of its own:
/// MUTANT(name, breaks().with_emulated_gpu()).
#define VARIANT(name) MUTANT(name, breaks())
