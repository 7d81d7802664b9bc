// Determines which device of a plugin belongs to which interface of a host.
#pragma once

#include <vector>

#include "harness/bed/device_table.h"
#include "harness/bed/test_bed.h"
#include "harness/control/session.h"

namespace plugfest::bed {

/// Variables that hide the devices of every NIC kind from a process.
control::Environment without_devices();

/// Returns the device of each of TestBed::interfaces(). The first of these that matches decides: the user's choice, the
/// name, the pciPath, a trial connection over the rank's path, the position. Interfaces without a match are omitted.
/// Returns nothing if the plugin fails before it has reported its devices; a rule then reports the failure.
/// `call_seconds`: the session's time limit of one call. Errors: std::runtime_error if the plugin has no device of a
/// choice.
std::vector<DeviceMatch> match_devices(control::Session& session, TestBed& bed,
                                       const std::vector<DeviceChoice>& choices, double call_seconds);

}  // namespace plugfest::bed
