// Escapes text for XML and HTML.
#pragma once

#include <string>
#include <string_view>

namespace plugfest::report {

/// Escapes `text` for elements and attributes of XML and HTML. Replaces invalid UTF-8 and control characters other than
/// tab and newline by '?'.
std::string escaped(std::string_view text);

}  // namespace plugfest::report
