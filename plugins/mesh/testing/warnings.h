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

/// A logger that appends WARN lines to `g_warnings`.
inline void keep_warnings(int level, unsigned long, const char*, int, const char* format, ...) {
  if (level != plugfest::abi::kLogWarn) return;
  va_list arguments;
  va_start(arguments, format);
  char text[1024];
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  g_warnings.emplace_back(text);
}

}  // namespace mesh
