// What the rules of every interface ask about its symbol and its functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/control/rank.h"
#include "harness/plugin/inspect.h"

namespace plugfest::conformance {

/// Why a symbol of the interface is of no use to NCCL: hidden, no data, or of another size than its version's struct. A
/// symbol without a size is accepted. nullopt: none is, and there is at least one.
std::optional<std::string> flaw_of_symbols(const std::string& library, plugin::InterfaceKind interface);

/// The functions of the version in use that are NULL and must not be.
std::vector<std::string> missing_functions(control::Rank& rank);

}  // namespace plugfest::conformance
