// The NICs of all hosts, as the plugin reports them.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "harness/control/session.h"
#include "harness/wire/fields.h"

namespace plugfest::cluster {

/// One device of the plugin on one host.
struct Nic {
  std::string host;
  /// "h1.mlx5_0": the host and the device's name, or "dev0" if the name has characters other than letters, digits, '_'
  /// and '-'. Also the name of its rank.
  std::string name;
  control::KnownDevice device = {};
  /// The index of the NIC among the devices of its host. NICs of one rail are measured with each other.
  std::size_t rail = 0;
  int speed_mbit_per_second = 0;
  PLUGFEST_FIELDS(name, host, key("device", device.name), rail, speed_mbit_per_second)
};

/// The devices that the plugin reported on one host.
struct HostDevices {
  std::vector<Nic> nics;
  std::string plugin_name;
  /// Why the host has none; empty after a success.
  std::string broken;
};

/// Loads and initializes the plugin on each host and reads its devices.
std::map<std::string, HostDevices> find_devices(control::Session& session, const std::vector<std::string>& hosts);

}  // namespace plugfest::cluster
