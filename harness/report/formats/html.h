// The document as an HTML page without external files, for browsers and CI artefacts.
#pragma once

#include <span>
#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// Returns a page with one table per run and filters by verdict. Each rule expands to its clause, message, last calls
/// and the command that repeats it. Of rules that were broken by one cause, the first is expanded. Links such as
/// #v12-CN-06 lead to a rule. Several runs are also shown as a matrix of rules and runs.
std::string to_html(std::span<const Document> documents);
inline std::string to_html(const Document& document) { return to_html(std::span(&document, 1)); }

}  // namespace plugfest::report
