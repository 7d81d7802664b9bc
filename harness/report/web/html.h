// The results as one HTML page without external files, for browsers and CI artefacts.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "harness/report/results.h"

namespace plugfest::report {

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
