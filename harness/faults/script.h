// Fault scripts: the language of --faults.
//
//   seed: 7
//   faults:
//     - {loss: 0.1%, delay: 1ms}                                  # whole run, every link
//     - {at: 1.5s, for: 200ms, link: a-b, do: down}               # time since the first rule began
//     - {on: {rule: XF-06, call: isend, nth: 3, rank: a}, host: b, do: freeze, for: 300ms}
//     - {on: {rule: TS-09}, after: 20ms, host: b, do: kill}       # time since the rule began
//     - {on: {rule: XF-01, call: test}, until: {call: test, nth: 50}, link: a-b, mtu: 1280}
//     - {on: {rule: XF-08}, interface: b.eth0, address: 192.168.100.77}
//
// docs/faults.md is the documentation for users.
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

/// Packet faults. Values are probabilities, except for the delay.
struct PacketFaults {
  double loss = 0;
  double duplicate = 0;
  double reorder = 0;
  double corrupt = 0;
  std::uint32_t delay_us = 0;
  std::uint64_t seed = 1;

  bool any() const { return loss > 0 || duplicate > 0 || reorder > 0 || corrupt > 0 || delay_us > 0; }
  /// The description for users: "loss 1%, delay 1ms".
  std::string text() const;
};

enum class Kind : std::uint8_t {
  kPackets,  ///< packet faults
  kDown,     ///< interfaces are down
  kMtu,      ///< interfaces have a smaller MTU
  kAddress,  ///< an interface has another address and its NIC other GIDs
  kFreeze,   ///< the ranks of a host are stopped (SIGSTOP)
  kKill,     ///< the current ranks of a host are killed (SIGKILL); never ends
};

/// An interface of a host or switch.
struct Interface {
  std::string node;
  std::string name;
  bool of_host = true;
  auto operator<=>(const Interface&) const = default;
};

struct Fault {
  Kind kind = Kind::kPackets;
  PacketFaults packets = {};
  int mtu_bytes = 0;
  topology::Ipv4Address address = {};
  /// The affected interfaces; for packet faults, the interfaces whose NICs inject the fault when sending.
  std::vector<Interface> interfaces = {};
  /// For packet faults: both directions of the interfaces' links are affected. If only one end of a link has a NIC,
  /// that NIC also injects the fault when receiving.
  bool both_ways = false;
  /// The host whose ranks are stopped or killed.
  std::string host = {};
  /// The description for users: "link a-b down", "host b frozen", "loss 1% on every link".
  std::string text = {};
};

/// A point in a rule: its start, or a call before the harness sends it.
struct Step {
  /// Rule id or pattern: "XF-06", "XF-*".
  std::string rule;
  /// The name of the call, "isend"; empty: the start of the rule.
  std::string call = {};
  unsigned nth = 1;
  /// The host or rank that makes the call, "a" or "a.eth0"; empty: any.
  std::string rank = {};
};

/// A fault and its time. It begins at `at`, counted from the start of the first rule; or at the step `on`, delayed by
/// `after`; or, without both, with the run. It ends after `duration`; or at the step `until`; or with the rule or run
/// in which it began.
struct Entry {
  Fault fault;
  std::optional<Duration> at = {};
  std::optional<Step> on = {};
  Duration after{0};
  std::optional<Duration> duration = {};
  /// Counts the calls after the fault has begun, in the rule of `on`. Its own rule is empty in scripts.
  std::optional<Step> until = {};
  /// The position in the script: "lab.yaml:4", "--faults".
  std::string source = {};

  /// The description of the start: "XF-06: isend 3 of rank a", "at 1.5 s", "from the start".
  std::string when() const;
};

struct Script {
  /// The value of --faults.
  std::string specification;
  std::vector<Entry> entries;
  /// The seed of the NICs' random decisions.
  std::optional<std::uint64_t> seed = {};

  /// Gives each entry a different seed, derived from the script's seed or, without one, from `default_seed`.
  void assign_seeds(std::uint64_t default_seed);
};

/// Parses "loss=1%,delay=1ms,seed=7", or the path of a file that ends in .yaml or .yml. `source`: the name of the first
/// form in errors. Errors: std::runtime_error, one line with the file's line and field and the expected values; also
/// for hosts and links that do not exist in `graph`.
Script read_script(const std::string& specification, const topology::Graph& graph,
                   const std::string& source = "--faults");

/// Whether the rule of `step` is `rule` or a pattern that matches it.
bool matches(const Step& step, std::string_view rule);

/// Whether the fault of `entry` can begin while the rule runs.
bool applies(const Entry& entry, std::string_view rule);

/// Removes entries whose rule is not one of `rules`, the ids of the rules that will run. `known`: the ids of all rules.
/// Errors: std::runtime_error with the position in the script, if a step's rule does not exist, or no entry remains.
void select_entries(Script& script, const std::vector<std::string>& rules, const std::vector<std::string>& known);

// The find functions return targets of faults by name. Errors: std::runtime_error without the position in the script:
// `"a-d": did you mean a-b?`.

/// Both ends of a link, in the order of the name. `name`: "a-b", or "a.eth0-b.eth0" if the hosts have several links.
std::vector<Interface> find_link(const topology::Graph& graph, std::string_view name);

/// The interface with the name "a.eth0".
Interface find_interface(const topology::Graph& graph, std::string_view name);

/// An unused address of the interface's subnet; nullopt if all are in use.
std::optional<topology::Ipv4Address> free_address(const topology::Graph& graph, const Interface& interface);
/// The interface that has an address: "a.eth0"; "" if none has it.
std::string owner_of(const topology::Graph& graph, topology::Ipv4Address address);
/// Whether an address is a host address of `subnet`: neither the network nor the broadcast address.
bool is_host_address(const topology::Subnet& subnet, topology::Ipv4Address address);
/// The subnet of an interface's link. Errors: std::runtime_error.
topology::Subnet subnet_of(const topology::Graph& graph, const Interface& interface);

/// Checks that a host exists. Returns `name`.
std::string find_host(const topology::Graph& graph, const std::string& name);

std::vector<Interface> host_interfaces(const topology::Graph& graph);

}  // namespace plugfest::faults
