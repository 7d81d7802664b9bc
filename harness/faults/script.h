// What shall go wrong during a run, and when: the language of --faults.
//
//   seed: 7
//   faults:
//     - {loss: 0.1%, delay: 1ms}                                  # from the first rule to the last, on every link
//     - {at: 1.5s, for: 200ms, link: a-b, do: down}               # since the first rule began
//     - {on: {rule: XF-06, call: isend, nth: 3, rank: a}, host: b, do: freeze, for: 300ms}
//     - {on: {rule: TS-09}, after: 20ms, host: b, do: kill}       # since the rule began
//     - {on: {rule: XF-01, call: test}, until: {call: test, nth: 50}, link: a-b, mtu: 1280}
//     - {on: {rule: XF-08}, interface: b.eth0, address: 192.168.100.77}
//
// docs/faults.md says it for users.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/topology/graph.h"

namespace plugfest::faults {

using Duration = std::chrono::nanoseconds;

/// What happens to packets; the values are probabilities but for the delay.
struct PacketFaults {
  double loss = 0;
  double duplicate = 0;
  double reorder = 0;
  double corrupt = 0;
  std::uint32_t delay_us = 0;
  std::uint64_t seed = 1;

  bool any() const { return loss > 0 || duplicate > 0 || reorder > 0 || corrupt > 0 || delay_us > 0; }
  /// "loss 1%, delay 1ms"
  std::string text() const;
};

enum class Kind : std::uint8_t {
  kPackets,  ///< packets fare as `packets` says
  kDown,     ///< interfaces are down
  kMtu,      ///< interfaces have another MTU
  kAddress,  ///< an interface has another address, and its NIC other GIDs
  kFreeze,   ///< the ranks of a host stand still (SIGSTOP)
  kKill,     ///< the ranks that a host has are killed; never ends
};

/// An interface of a host or switch.
struct Interface {
  std::string node;
  std::string name;
  bool of_host = true;
  auto operator<=>(const Interface&) const = default;
};

/// What goes wrong, and where.
struct Fault {
  Kind kind = Kind::kPackets;
  PacketFaults packets = {};
  int mtu_bytes = 0;
  topology::Ipv4Address address = {};
  /// Those that it happens to, or whose NICs do it to what they send.
  std::vector<Interface> interfaces = {};
  /// For packets: the links of these interfaces are meant, both ways, and where only one end has a NIC that NIC does it
  /// to what arrives too.
  bool both_ways = false;
  /// Whose ranks stand still or die.
  std::string host = {};
  /// "link a-b down", "host b frozen", "loss 1% on every link".
  std::string text = {};
};

/// A point in the course of a rule: its begin, or a call that the harness is about to make.
struct Step {
  /// Id or pattern: "XF-06", "XF-*".
  std::string rule;
  /// "isend"; empty: the rule's begin.
  std::string call = {};
  unsigned nth = 1;
  /// Host or rank that makes the call, "a" or "a.eth0"; empty: either.
  std::string rank = {};
};

/// A fault and its time. It begins `at` a time since the first rule began, or `after` a step; with neither it is there
/// from the start. It ends after `duration`, at `until`, or with the rule or run in which it began.
struct Entry {
  Fault fault;
  std::optional<Duration> at = {};
  std::optional<Step> on = {};
  Duration after{0};
  std::optional<Duration> duration = {};
  /// Counts calls since the fault began, in the rule of `on`, which it leaves out.
  std::optional<Step> until = {};
  /// "lab.yaml:4", "--faults".
  std::string source = {};

  /// "XF-06: isend 3 of rank a", "at 1.5 s", "from the start".
  std::string when() const;
};

struct Script {
  /// As the user gave it.
  std::string asked;
  std::vector<Entry> entries;
  /// Of the NICs' random choices.
  std::optional<std::uint64_t> seed = {};

  /// Gives each entry a seed of its own that follows from the script's, or from `otherwise` where that has none.
  void assign_seeds(std::uint64_t otherwise);
};

/// Reads what stands behind --faults: "loss=1%,delay=1ms,seed=7", or the path of a file that ends in .yaml or .yml.
/// Errors: std::runtime_error, one line that names the file's line and field, and what there is instead; also for hosts
/// and links that `graph` has not.
Script read_script(const std::string& asked, const topology::Graph& graph);

/// Whether `rule` is what `step` speaks of.
bool matches(const Step& step, std::string_view rule);

/// Requires that each step's rule is among `rules`, the ids of those that will run; `known`: of all that there are.
/// Errors: std::runtime_error with the entry's source.
void require_rules(const Script& script, const std::vector<std::string>& rules, const std::vector<std::string>& known);

}  // namespace plugfest::faults
