// The document as JUnit XML, for what CI systems show.
#pragma once

#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// One testsuite a run. failure: the plugin broke a rule, crashed or hung. error: the harness failed, or a verdict is
/// missing. skipped: skip and n/a, with the reason. Characters that XML 1.0 cannot hold become '?'.
std::string to_junit(const Document& document);

}  // namespace plugfest::report
