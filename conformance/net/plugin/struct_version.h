// Recognises properties that were written with the structure of another version.
#pragma once

#include <string>

#include "harness/control/rank.h"

namespace plugfest::conformance {

/// "; the values are those of a v8 structure: wrong struct version?" when the properties of a plugin of version `api`
/// are implausible and its bytes make sense as the structure of another version; else "".
std::string version_hint(const control::PropertiesOutcome& properties, int api);

}  // namespace plugfest::conformance
