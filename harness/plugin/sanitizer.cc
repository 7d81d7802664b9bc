#include "harness/plugin/sanitizer.h"

#include <fmt/format.h>

#include <cstdlib>

#include "harness/plugin/elf/elf_file.h"
#include "harness/plugin/elf/inspect.h"

namespace plugfest::plugin {
namespace {

struct Sanitizer {
  const char* name;
  /// Part of the file name of each runtime: libasan.so.8, libclang_rt.asan-x86_64.so.
  const char* runtime;
  /// Every instrumented library calls it.
  const char* function;
  const char* options_variable;
  const char* options;
};
// Ranks look for no leaks: they end without running the plugin's destructors.
constexpr Sanitizer kSanitizers[] = {
    {"AddressSanitizer", "asan", "__asan_init", "ASAN_OPTIONS", "abort_on_error=1:detect_leaks=0"},
    {"ThreadSanitizer", "tsan", "__tsan_init", "TSAN_OPTIONS", "abort_on_error=1:halt_on_error=1"},
};

#ifdef PLUGFEST_HAS_SANITIZER
constexpr bool kHasRuntime = true;
#else
constexpr bool kHasRuntime = false;
#endif

/// The value of a variable with the user's part: "first" or "first:user's".
std::string before_inherited(const char* variable, const std::string& first) {
  const char* inherited = std::getenv(variable);
  return inherited == nullptr || *inherited == '\0' ? first : fmt::format("{}:{}", first, inherited);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> sanitizer_environment(const std::string& path) {
  if (kHasRuntime) return {};
  const ElfFile file(path);
  for (const Sanitizer& sanitizer : kSanitizers) {
    bool instrumented = false;
    for (const ElfSymbol& symbol : file.dynamic_symbols(sanitizer.function))
      instrumented = instrumented || (symbol.name == sanitizer.function && !symbol.defined);
    if (!instrumented) continue;
    for (const std::string& needed : file.needed()) {
      if (needed.find(sanitizer.runtime) == std::string::npos) continue;
      return {{"LD_PRELOAD", before_inherited("LD_PRELOAD", needed)},
              {sanitizer.options_variable, before_inherited(sanitizer.options_variable, sanitizer.options)}};
    }
    throw LoadError(
        fmt::format("{}: built with clang's {}, and names no library with its runtime: link it with -shared-libsan, "
                    "and set LD_LIBRARY_PATH to the folder that clang -print-runtime-dir prints",
                    path, sanitizer.name));
  }
  return {};
}

}  // namespace plugfest::plugin
