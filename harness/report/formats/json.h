// The document as results.json, schema 1.
#pragma once

#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// Version of the format: grows when a reader of the old one would misread the new.
inline constexpr int kSchema = 1;

/// UTF-8, indented, a line feed at the end. Bytes that are no UTF-8 (plugins may log anything) become U+FFFD.
std::string to_json(const Document& document);

}  // namespace plugfest::report
