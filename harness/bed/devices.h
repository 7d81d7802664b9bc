// Determines which device of a plugin belongs to which interface of a host.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/bed/test_bed.h"
#include "harness/control/session.h"

namespace plugfest::bed {

/// Variables that hide the devices of every NIC kind from a process.
control::Environment without_devices();

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

/// Returns the device of each of TestBed::interfaces(). The first of these that matches decides: the user's choice, the
/// name, the pciPath, a trial connection over the rank's path, the position. Interfaces without a match are omitted.
/// Returns nothing if the plugin fails before it has reported its devices; a rule then reports the failure.
/// `call_seconds`: the session's time limit of one call. Errors: std::runtime_error if the plugin has no device of a
/// choice.
std::vector<DeviceMatch> match_devices(control::Session& session, TestBed& bed,
                                       const std::vector<DeviceChoice>& choices, double call_seconds);

}  // namespace plugfest::bed
