// Checks of the symbols, functions and properties of a library that several rules share.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "harness/control/rank.h"
#include "harness/plugin/inspect.h"

namespace plugfest::conformance {

/// Why NCCL cannot use a symbol of the interface: it is hidden, no data, or of another size than its version's struct.
/// A symbol without a size is accepted. nullopt: all are usable, and there is at least one.
std::optional<std::string> flaw_of_symbols(const std::string& library, plugin::InterfaceKind interface);

/// The required functions of the version in use that are NULL.
std::vector<std::string> missing_functions(control::Rank& rank);

/// The names of all devices, in their order.
std::vector<std::string> device_names(control::Rank& rank);

/// "; the values belong to a v8 structure: wrong struct version?" when the properties of a plugin of version `api`
/// are implausible and its bytes are plausible as the struct of another version; otherwise "".
std::string version_hint(const control::PropertiesOutcome& properties, int api);

/// Calls `check(index, properties, call)` for each device, with the outcome of a successful getProperties and the start
/// of a message: "rank a.eth0: getProperties(0)".
template <typename Check>
void for_each_device(control::Rank rank, Check check) {
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) {
    const control::PropertiesOutcome properties = rank.try_properties(control::Device{index});
    control::require_success(properties);
    check(index, properties, fmt::format("rank {}: getProperties({})", rank.name(), index));
  }
}

}  // namespace plugfest::conformance
