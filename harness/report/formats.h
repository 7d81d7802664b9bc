// The document as JUnit, as Markdown and as a badge. Each function accepts any bytes in text from plugins.
#pragma once

#include <string>

#include "harness/report/results.h"

namespace plugfest::report {

/// Returns one testsuite per run. failure: fail, crash, timeout. error: error, missing. skipped: skip, n/a, waived.
/// Replaces characters that XML 1.0 does not allow by '?'.
std::string to_junit(const Document& document);

/// Returns the subject, the counts, the causes that broke several rules, each rule that did not pass with its message,
/// and the details of one rule per cause with the command that repeats it. Omits details that would exceed GitHub's
/// limit of 1 MiB, and states their number.
std::string to_markdown(const Document& document);

/// Returns the JSON of an endpoint badge of shields.io: the counts of verdicts; green, yellow with warnings, red if the
/// plugin broke rules, grey if it could not be judged.
/// Source: https://shields.io/badges/endpoint-badge.
std::string to_badge(const Document& document);

}  // namespace plugfest::report
