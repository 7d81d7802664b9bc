// The loop of rules about properties.
#pragma once

#include <fmt/format.h>

#include <string>

#include "harness/control/rank.h"

namespace plugfest::conformance {

/// Calls `check(index, properties, call)` for each device, with the outcome of a successful getProperties and the
/// beginning of a message: "rank a.eth0: getProperties(0)".
template <class Check>
void for_each_device(control::Rank rank, Check check) {
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) {
    const control::PropertiesOutcome properties = rank.try_properties(control::Device{index});
    control::require_success(properties);
    check(index, properties, fmt::format("rank {}: getProperties({})", rank.name(), index));
  }
}

}  // namespace plugfest::conformance
