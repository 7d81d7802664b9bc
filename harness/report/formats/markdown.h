// The document as a summary in Markdown, for $GITHUB_STEP_SUMMARY.
#pragma once

#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// Returns the subject, the counts, the causes that broke several rules, each rule that did not pass with its message,
/// and the details of one rule per cause with the command that repeats it. Omits details that would exceed GitHub's
/// limit of 1 MiB, and states their number.
std::string to_markdown(const Document& document);

}  // namespace plugfest::report
