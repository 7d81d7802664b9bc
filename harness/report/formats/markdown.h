// The document as a short summary in Markdown, as GitHub shows it for a job ($GITHUB_STEP_SUMMARY).
#pragma once

#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// What was judged, the counts, and what did not pass with its message and the command that runs it again. Less than
/// GitHub's limit of 1 MiB, whatever plugins say: details that would not fit are left out, and that is said.
std::string to_markdown(const Document& document);

}  // namespace plugfest::report
