// The document as a badge.
#pragma once

#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// Returns the JSON of an endpoint badge of shields.io: the counts of verdicts; green, yellow with warnings, red if the
/// plugin broke rules, grey if it could not be judged.
/// Source: https://shields.io/badges/endpoint-badge.
std::string to_badge(const Document& document);

}  // namespace plugfest::report
