// The devices of a plugin on each host, and which of them belongs to which interface.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/control/properties.h"
#include "harness/control/session.h"

namespace plugfest::bed {

/// One --device option: the plugin's device for an interface, as the user states it.
struct DeviceChoice {
  /// A device's name, or its index.
  std::string device;
  std::string host;
  std::string interface;

  std::string text() const;
};

/// Parses "foo0=a/eth0". Errors: std::runtime_error.
DeviceChoice parse_device_choice(std::string_view text);

/// Refuses a choice of an interface that is not in `interfaces`, or that another choice also names. Errors:
/// std::runtime_error with a suggestion.
void check_device_choices(const std::vector<DeviceChoice>& choices, const std::set<std::string>& interfaces);

struct DeviceMatch {
  /// "a.eth0", which is also the name of a rank.
  std::string rank;
  control::KnownDevice device;
  /// How the device was found: "name"; "pciPath"; "trial": a connection through this device used the interface;
  /// "order": device n is assumed to be the n-th interface of the host, unless its name is that of another interface;
  /// "--device".
  std::string found_by;
};

/// The interface of a rank: "eth0" for "a.eth0".
std::string interface_of(const std::string& rank);

/// The devices of all ranks. A rank is matched at most once: later calls skip it. Not thread-safe.
class DeviceTable {
 public:
  /// The devices that the plugin reported on the rank's host, in its order.
  void add(const std::string& rank, std::vector<control::Properties> devices) {
    ends_[rank].devices = std::move(devices);
  }
  /// Precondition of this function and the next two: the rank was added.
  const std::vector<control::Properties>& devices(const std::string& rank) const { return ends_.at(rank).devices; }
  bool is_matched(const std::string& rank) const { return ends_.at(rank).index.has_value(); }
  /// Notes how the device of a rank was found. Does nothing if the rank is matched.
  void match(const std::string& rank, int device, std::string_view found_by);
  /// The ranks without a device.
  std::vector<std::string> unmatched() const;

  /// Errors: std::runtime_error if the plugin has no such device.
  void choose(const DeviceChoice& choice);
  void match_by_name();
  void match_by_order();

  /// The devices that may belong to the rank: its device, or those that belong to no other interface of its host,
  /// starting with the one at the position of the interface.
  std::vector<int> candidates(const std::string& rank) const;

  /// The matched ranks, sorted by name.
  std::vector<DeviceMatch> matches() const;

 private:
  struct End {
    std::vector<control::Properties> devices;
    std::optional<int> index;
    std::string found_by;
  };

  std::map<std::string, End> ends_;  ///< by rank
};

}  // namespace plugfest::bed
