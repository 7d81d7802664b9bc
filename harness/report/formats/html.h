// The document as an HTML page without external files, for browsers and CI artefacts.
#pragma once

#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// Returns a page with one table per run and filters by verdict. Each rule expands to its clause, message, last calls
/// and the command that repeats it. Of rules that were broken by one cause, the first is expanded. Links such as #v12-CN-06 lead to a rule.
std::string to_html(const Document& document);

}  // namespace plugfest::report
