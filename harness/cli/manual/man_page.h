// Manual pages.
#pragma once

#include <string>

#include "harness/cli/command_line.h"

namespace plugfest::cli {

/// Returns a page of section 1 for `command`, in the macros of man(7). `path`: the words that name the command,
/// "plugfest fabric up". `version`: of plugfest.
std::string man_page(const CommandText& command, const std::string& path, const std::string& version);

}  // namespace plugfest::cli
