// Text of plugins inside XML and HTML.
#pragma once

#include <string>
#include <string_view>

namespace plugfest::report {

/// `text` as it may stand in an element or an attribute of XML or HTML. What is no UTF-8, and control characters but
/// tab and newline, become '?'.
std::string escaped(std::string_view text);

}  // namespace plugfest::report
