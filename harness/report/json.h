// results.json, schema 1, and the JSON of benchmarks.
#pragma once

#include <string>

#include "harness/report/results.h"

namespace plugfest::report {

/// Version of the format. It increases when the meaning of a field changes.
inline constexpr int kSchema = 1;

/// Returns indented UTF-8 with a final line feed. Replaces invalid UTF-8, which plugins may log, by U+FFFD.
std::string to_json(const Document& document);

/// Returns what a results.json holds, without mutants. `stop_signal` is SIGINT if the run was interrupted.
/// Errors: std::runtime_error "not a results.json of plugfest: runs[0].seed is missing" if `text`, which may come from
/// anywhere, is something else; "schema 2: …" if a newer plugfest wrote it.
Document read_document(const std::string& text);
/// Reads a file. Errors: as above with the path in front; "FILE: cannot read: …".
Document read_results(const std::string& path);
/// As read_results(), and also takes what `bench net --json` and `coll --json` have written: a document without runs,
/// with curves by message size. Rows that have one size only, such as message rates, are left out.
Document read_results_or_curves(const std::string& path);

}  // namespace plugfest::report
