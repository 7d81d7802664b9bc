// The results as one HTML page without external files, for browsers and CI artefacts.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "harness/report/results.h"

namespace plugfest::report {

/// What the page contains at most. The page names what was left out.
struct PageLimits {
  std::size_t calls = 256;                          ///< of each rank of a rule; the last ones stay
  std::size_t packets = 400;                        ///< of each rule; the last ones stay
  std::size_t pairs = 128 * 128;                    ///< of each document
  std::size_t evidence_bytes = 16ul * 1024 * 1024;  ///< logs, output, calls and packets of all rules
};

/// Returns the page: a shell, scripts and styles from files of this folder, and the documents as data, in the format of
/// results.json. The content security policy of the page allows these scripts and styles only, and no network. Text of
/// plugins is data; the scripts never interpret it. Links such as #v12-CN-06 lead to a rule.
std::string to_html(std::span<const Document> documents, const PageLimits& limits);
std::string to_html(std::span<const Document> documents);
inline std::string to_html(const Document& document) { return to_html(std::span(&document, 1)); }

}  // namespace plugfest::report
