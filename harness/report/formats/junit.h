// The document as JUnit XML, for CI systems.
#pragma once

#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// Returns one testsuite per run. failure: fail, crash, timeout. error: error, missing. skipped: skip, n/a, waived.
/// Replaces characters that XML 1.0 does not allow by '?'.
std::string to_junit(const Document& document);

}  // namespace plugfest::report
