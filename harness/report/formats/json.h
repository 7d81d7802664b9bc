// The document as results.json, schema 1.
#pragma once

#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// Version of the format. It increases when the meaning of a field changes.
inline constexpr int kSchema = 1;

/// Returns indented UTF-8 with a final line feed. Replaces invalid UTF-8, which plugins may log, by U+FFFD.
std::string to_json(const Document& document);

}  // namespace plugfest::report
