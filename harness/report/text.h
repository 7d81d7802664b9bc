// Text for terminals of 80 columns, and escaped text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/results.h"

namespace plugfest::report {

/// The width of tables, rows of rules and help.
inline constexpr std::size_t kColumns = 80;

/// Codes of colors in the escape sequences of terminals.
inline constexpr std::string_view kRed = "31", kGreen = "32", kYellow = "33", kDim = "2", kBold = "1";

/// `text` between the escape sequences of a color.
std::string painted(std::string_view color, std::string_view text);

/// Replaces control characters other than `kept`, and bytes that are not UTF-8, by '?', because text from plugins may
/// contain escape sequences.
std::string printable(std::string_view text, std::string_view kept = "\t");

/// The number of columns of UTF-8 text without wide characters.
std::size_t columns(std::string_view text);

/// Breaks `text` at spaces into lines of at most `width` columns; longer words stay whole. Lines after the first one
/// start with `indent` spaces, and the first one is shorter by `indent`. Without a newline at the end.
std::string wrapped(std::string_view text, std::size_t indent = 0, std::size_t width = kColumns);

/// "NIC a.eth0: unknown queue pairs 3, timeouts 1".
std::string nic_text(const NicRecord& nic);

std::string_view first_line(std::string_view text);

/// Escapes `text` for elements and attributes of XML and HTML. Replaces invalid UTF-8 and control characters other than
/// tab and newline by '?'.
std::string escaped(std::string_view text);

/// The lines of `text`, without line feeds.
std::vector<std::string> lines_of(std::string_view text);

}  // namespace plugfest::report
