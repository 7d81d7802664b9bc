// A mutant: a correct base plugin with one change that breaks rules. All rules that it declares must kill it, and no
// other rule may.
//
//   // A listener accepts one peer.
//   MUTANT(one_peer_per_listener, breaks("CN-19")) {
//     auto& used = kept<PointerSet>();
//     on_success(net.listen, [&](Listen listen) { used.erase(*listen.comm); });
//     on_success(net.accept, [&](Accept accept) { used.insert(accept.listener); });
//     refuse(net.accept, Result::kInternalError, [&](Accept accept) { return used.contains(accept.listener); });
//   }
//
// All mutations are linked into one library (shim.cc), which applies the mutation that the library's file name selects.
// Programs load that library to list the mutants (kill.h) instead of linking them.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "conformance/mutants/net_functions.h"

namespace plugfest::mutants {

struct Mutant {
  /// "connect_waits_for_accept"; its library is libnccl-net-<name>.so.
  std::string name;
  /// Rules that must fail on the mutant. Empty for a variant, which must pass every rule.
  std::vector<std::string> breaks;
  /// Rules that the bug makes fail in some runs: ids and globs. Of a variant: the [S] rules that warn about what it
  /// does, which NCCL allows.
  std::vector<std::string> may_break = {};
  /// Why the bug affects so many rules; required if `may_break` matches more than kMaxWithoutReason rules.
  std::string reason = {};
  /// The version of the net interface that is tested; 0: the newest.
  int api = 0;
  /// Whether its bug occurs so rarely that no rule catches it, but plugfest fuzz does.
  bool only_fuzz = false;
  /// It requires a GPU: its ranks get the emulated GPU.
  bool emulate_gpu = false;
  /// Its device names do not identify their interfaces, which are determined as in plugfest run.
  bool match_devices = false;
  /// Its functions refuse all calls: only the rules that it declares run on it.
  bool refuses_calls = false;
  /// Null for mutants that are libraries of their own, and for mutants of another interface.
  void (*mutate)(Net& net, const Net& good) = nullptr;
  plugin::InterfaceKind interface = plugin::InterfaceKind::kNet;
  /// Set for mutants of interfaces other than net.
  void (*mutate_calls)(Calls& calls) = nullptr;

  static constexpr std::size_t kMaxWithoutReason = 20;

  bool is_variant() const { return breaks.empty() && !only_fuzz; }
  /// Copies with one more property: breaks("XF-01").also("MR-05", "TH-*").as_v(10).
  template <typename... Rules>
  Mutant also(Rules... rules) const {
    return with(&Mutant::may_break, {rules...});
  }
  /// Completes `also`: .also("XF-*").because("each rule with messages of 64 KiB gets wrong bytes").
  Mutant because(std::string why) const { return with(&Mutant::reason, std::move(why)); }
  /// The shim does not forward the traffic class of v10 and older, so such a mutant may break IN-20.
  Mutant as_v(int version) const { return with(&Mutant::api, version); }
  Mutant with_emulated_gpu() const { return with(&Mutant::emulate_gpu, true); }
  Mutant with_devices_matched() const { return with(&Mutant::match_devices, true); }
  Mutant refusing_calls() const { return with(&Mutant::refuses_calls, true); }

 private:
  template <typename Value>
  Mutant with(Value Mutant::*member, std::type_identity_t<Value> value) const {
    Mutant copy = *this;
    copy.*member = std::move(value);
    return copy;
  }
};

/// A mutant without name and mutation; MUTANT adds these.
template <typename... Rules>
Mutant breaks(Rules... rules) {
  return {.name = {}, .breaks = {rules...}};
}

inline Mutant only_fuzz_finds() { return {.name = {}, .breaks = {}, .only_fuzz = true}; }

/// The mutants and variants that are linked into this library, sorted by name.
const std::vector<Mutant>& mutants();
/// The name of the mutant that this library was loaded as: "x" for ".../libnccl-net-x.so".
std::string own_name();
/// The mutant of that name. Null, with a line on stderr, when there is none.
const Mutant* selected_mutant();
/// The folder from which this library was loaded, with a slash.
std::string own_folder();

/// Adds to `mutants()` during static initialization.
struct MutantRegistration {
  MutantRegistration(std::string_view name, Mutant mutant, void (*mutate)(Net& net, const Net& good));
  MutantRegistration(std::string_view name, plugin::InterfaceKind interface, Mutant mutant,
                     void (*mutate)(Calls& calls));
};

}  // namespace plugfest::mutants

/// `breaks_what`: breaks("CN-06"), breaks("CN-06").also("CN-09"), or breaks("IN-03").as_v(10). The body replaces
/// functions of `net`. `good`, the functions of the base plugin, lives as long as `net`.
#define MUTANT(name, breaks_what)                                                                               \
  static void mutate_##name(::plugfest::mutants::Net& net, const ::plugfest::mutants::Net& good);               \
  static const ::plugfest::mutants::MutantRegistration register_##name{#name, ::plugfest::mutants::breaks_what, \
                                                                       mutate_##name};                          \
  static void mutate_##name([[maybe_unused]] ::plugfest::mutants::Net& net,                                     \
                            [[maybe_unused]] const ::plugfest::mutants::Net& good)

/// A mutant of another interface: MUTANT_OF(no_name, kCollNet, breaks("CO-20")) { calls["getProperties"] = …; }
#define MUTANT_OF(name, interface, breaks_what)                                                              \
  static void mutate_##name(::plugfest::mutants::Calls& calls);                                              \
  static const ::plugfest::mutants::MutantRegistration register_##name{                                      \
      #name, ::plugfest::plugin::InterfaceKind::interface, ::plugfest::mutants::breaks_what, mutate_##name}; \
  static void mutate_##name(::plugfest::mutants::Calls& calls)

/// Mutants that are libraries of their own: LIBRARY_MUTANT(hidden_symbol, breaks("LD-01").refusing_calls());
#define LIBRARY_MUTANT(name, breaks_what) LIBRARY_MUTANT_OF(name, kNet, breaks_what)
#define LIBRARY_MUTANT_OF(name, interface, breaks_what)                       \
  static const ::plugfest::mutants::MutantRegistration register_##name {      \
#name, ::plugfest::plugin::InterfaceKind::interface, breaks_what, nullptr \
  }

/// A variant: a plugin that differs from the base plugin in a way that the contract allows. A variant with settings:
/// MUTANT(name, breaks().also("TS-03").with_emulated_gpu()).
#define VARIANT(name) MUTANT(name, breaks())
/// A variant of another interface.
#define VARIANT_OF(name, interface) MUTANT_OF(name, interface, breaks())
