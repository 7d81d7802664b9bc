// Collects the WARN lines of the plugin.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

#include "harness/abi/base.h"

namespace mesh {

/// WARN lines since the test cleared it.
inline std::vector<std::string> g_warnings;

/// All lines since the test cleared it.
inline std::vector<std::string> g_lines;

/// A logger that appends each line to `g_lines`, and WARN lines to `g_warnings`.
inline void keep_warnings(int level, unsigned long, const char*, int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[1024];
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  g_lines.emplace_back(text);
  if (level == plugfest::abi::kLogWarn) g_warnings.emplace_back(text);
}

}  // namespace mesh
