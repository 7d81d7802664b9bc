// results.json, schema 1, and the JSON of benchmarks.
#pragma once

#include <string>

#include "harness/report/results.h"

namespace plugfest::report {

/// Version of the format. It increases when the meaning of a field changes.
inline constexpr int kSchema = 1;

/// Returns indented UTF-8 with a final line feed. Replaces invalid UTF-8, which plugins may log, by U+FFFD.
std::string to_json(const Document& document);

/// Returns the content of a results.json, without mutants. `stop_signal` is SIGINT if the run was interrupted. Errors:
/// std::runtime_error "not a results.json of plugfest: runs[0].seed is missing" if `text`, which is untrusted, is
/// invalid; "schema 2: …" if a newer plugfest wrote it.
Document read_document(const std::string& text);
/// Reads a file. Errors: as above, preceded by the path; "FILE: cannot read: …".
Document read_results(const std::string& path);
/// As read_results(), and also reads the output of `bench net --json` and `coll --json`: a document without runs, with
/// curves by message size. Omits rows that have only one size, such as message rates.
Document read_results_or_curves(const std::string& path);

}  // namespace plugfest::report
