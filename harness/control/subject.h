// Parameters of a session: the plugin under test, the environment of its ranks, and the limits of its calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/control/launcher.h"
#include "harness/control/properties.h"
#include "harness/plugin/layout.h"
#include "harness/wire/fields.h"

namespace plugfest::control {

/// Identifies a device in another process of the plugin. Its index may differ there: a plugin may omit devices whose
/// link is down.
struct KnownDevice {
  int index = 0;
  std::string name;
  std::uint64_t guid = 0;
  PLUGFEST_FIELDS(index, name, guid)

  /// Returns the index in `devices` of the only device with its guid, else of the only one with its name, else `index`.
  /// nullopt if there are fewer devices.
  std::optional<int> find(const std::vector<Properties>& devices) const;
};

/// The plugin under test and the environment of its ranks.
struct Subject {
  /// The user's name for it: a path, a name that is resolved as in NCCL_NET_PLUGIN, "nccl:Socket".
  std::string plugin;
  /// 0: the newest version the plugin has.
  int api = 0;
  /// The interface that the rules use. A library may export several.
  plugin::InterfaceKind interface = plugin::InterfaceKind::kNet;
  /// Added to each rank's environment: LD_LIBRARY_PATH for the NIC, NCCL_*, the plugin's own variables.
  Environment environment = {};
  /// Devices of interfaces that device names do not identify, by the rank's name "a.eth0".
  std::map<std::string, KnownDevice> devices = {};
  PLUGFEST_FIELDS(plugin, api, interface, environment, devices)
};

struct Limits {
  /// Time limit of one call, and of operations without progress. Time in which the rule's ranks wait for a processor
  /// does not count (LoadClock).
  double call_seconds = 10;
  /// Time limit, in seconds, of a call that is blocked in the kernel at a known place: a place in the plugin at which
  /// another call has hung for the full limit. It applies after three calls of the session have hung for the full
  /// limit. 0: the full limit.
  double blocked_seconds = 0;
  /// The share of `call_seconds` that commands use as `blocked_seconds`.
  static constexpr double kBlockedShare = 0.03;
  /// Number of calls of each rank that the report of a failure shows.
  std::size_t last_calls = 12;
  /// Bytes of a rank's output that are kept for each rule.
  std::size_t output_bytes = 64 * 1024;
  /// A descriptor that becomes and stays readable when the user interrupts the run. Functions that wait for a rank then
  /// throw `Interrupted`. -1: none.
  int stop_fd = -1;
};

}  // namespace plugfest::control
