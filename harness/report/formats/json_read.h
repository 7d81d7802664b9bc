// Reads results.json again.
#pragma once

#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// Returns what a results.json holds, without mutants. `stop_signal` is SIGINT if the run was interrupted.
/// Errors: std::runtime_error "not a results.json of plugfest: …" if `text`, which may come from anywhere, is something
/// else; "schema 2: …" if a newer plugfest wrote it.
Document read_document(const std::string& text);
/// Reads a file. Errors: as above with the path in front; "FILE: cannot read: …".
Document read_results(const std::string& path);
/// As read_results(), and also takes what `bench net --json` and `coll --json` have written (curves_read.h).
Document read_results_or_curves(const std::string& path);

}  // namespace plugfest::report
