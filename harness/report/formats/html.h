// The document as one page that needs nothing beside it: for a browser, a mail, an artifact of CI.
#pragma once

#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// One table a run: verdicts, which filter; each rule opens to its clause, message, last calls and the command that
/// runs it again. What broke is open. Links such as #v12-CN-06 lead to a rule.
std::string to_html(const Document& document);

}  // namespace plugfest::report
