// Plugins that were built with AddressSanitizer or ThreadSanitizer.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace plugfest::plugin {

/// Changes to the environment of a process that loads the library at `path`: LD_PRELOAD with the runtime of its
/// sanitizer, which must be loaded first, and options with which a finding of the sanitizer aborts the process. Values
/// that the user has set are kept: options of the user win. Empty for a library without a sanitizer, and in a build of
/// plugfest with one, whose ranks have the runtime.
/// Errors: LoadError for a library that needs a runtime and does not name it, as those of clang; ElfError.
std::vector<std::pair<std::string, std::string>> sanitizer_environment(const std::string& path);

}  // namespace plugfest::plugin
