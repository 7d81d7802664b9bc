// Results as JSON (results.json, schema 2), JUnit, Markdown, badge and HTML. Each function accepts any bytes in text
// from plugins.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "harness/report/results.h"

namespace plugfest::report {

/// Version of the format. It increases when the meaning of a field changes.
inline constexpr int kSchema = 2;

/// Returns indented UTF-8 with a final line feed. Replaces invalid UTF-8, which plugins may log, by U+FFFD.
std::string to_json(const Document& document);

/// Returns the JSON Schema of the documents of to_json(), made from the same fields.
std::string json_schema();

/// Returns the content of a results.json, without mutants. `stop_signal` is SIGINT if the run was interrupted. Errors:
/// std::runtime_error "not a results.json of plugfest: runs[0].seed is missing" if `text`, which is untrusted, is
/// invalid; "schema 2: …" if a newer plugfest wrote it.
Document read_document(const std::string& text);
/// Reads a file. Errors: as read_document(), preceded by the path; "FILE: cannot read: …".
Document read_results(const std::string& path);
/// Reads a results.json like read_results(), or the output of `bench net --json`, `coll --json` and `soak --json`: a
/// document without runs, with curves. Omits rows that have only one size, such as message rates.
Document read_results_or_curves(const std::string& path);

/// Returns one testsuite per run. failure: fail, crash, timeout. error: error, missing. skipped: skip, n/a, waived.
/// Replaces characters that XML 1.0 does not allow by '?'.
std::string to_junit(const Document& document);

/// Returns the subject, the counts, the causes that broke several rules, each rule that did not pass with its message,
/// and the details of one rule per cause with the command that repeats it. Omits details that would exceed GitHub's
/// limit of 1 MiB, and states their number.
std::string to_markdown(const Document& document);

/// Returns the JSON of an endpoint badge of shields.io: the counts of verdicts; green, yellow with warnings, red if the
/// plugin broke rules, gray if it could not be tested.
/// Source: https://shields.io/badges/endpoint-badge.
std::string to_badge(const Document& document);

/// Maximum content of the page, which states the omissions.
struct PageLimits {
  std::size_t calls = 256;                          ///< calls of each rank of a rule; the last ones are kept
  std::size_t packets = 400;                        ///< packets of each rule; the last ones are kept
  std::size_t pairs = 128 * 128;                    ///< pairs of each document
  std::size_t evidence_bytes = 16ul * 1024 * 1024;  ///< logs, output, calls and packets of all rules
};

/// Returns the page: a shell, scripts and styles from files of this folder, and the documents as data, in the format of
/// results.json. The page's content security policy allows only these scripts and styles, and no network. The scripts
/// never interpret text from plugins. Links such as #v12-CN-06 lead to a rule.
std::string to_html(std::span<const Document> documents, const PageLimits& limits);
std::string to_html(std::span<const Document> documents);
inline std::string to_html(const Document& document) { return to_html(std::span(&document, 1)); }

}  // namespace plugfest::report
