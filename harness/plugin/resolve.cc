#include "harness/plugin/resolve.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <strings.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "harness/plugin/elf_file.h"
#include "harness/plugin/inspect.h"

namespace plugfest::plugin {
namespace {

#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#endif
constexpr const char* kSystemFolders[] = {"/lib/" MULTIARCH, "/usr/lib/" MULTIARCH, "/lib64", "/usr/lib64", "/lib",
                                          "/usr/lib"};

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// True when the loader's search ends at this file, even if loading it fails.
bool search_ends_at(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0) return false;
  try {
    const ElfFile file(path);
  } catch (const ElfOfOtherMachine&) {
    return false;
  } catch (const ElfError&) {
    // The loader and inspect() report an error for this file.
  }
  return true;
}

// The paths of a name in the loader's cache. Layout: glibc, sysdeps/generic/dl-cache.h.
std::vector<std::string> cached_paths(const std::string& file_name) {
  struct Header {
    char magic[20];
    std::uint32_t entries, strings_size;
    std::uint32_t unused[5];
  };
  struct Entry {
    std::int32_t flags;
    std::uint32_t key, value, os_version;
    std::uint64_t hardware;
  };
  static_assert(sizeof(Header) == 48 && sizeof(Entry) == 24);
  std::ifstream stream("/etc/ld.so.cache", std::ios::binary);
  const std::string cache{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  std::vector<std::string> paths;
  // A table in an older format may precede this one. Offsets count from the magic.
  const std::size_t start = cache.find("glibc-ld.so.cache1.1");
  if (start == std::string::npos || cache.size() - start < sizeof(Header)) return paths;
  const std::string_view table = std::string_view(cache).substr(start);
  Header header;
  std::memcpy(&header, table.data(), sizeof header);
  const auto string_at = [&](std::uint32_t offset) {
    return offset < table.size() ? table.substr(offset, table.substr(offset).find('\0')) : std::string_view();
  };
  for (std::size_t i = 0; i < header.entries; ++i) {
    const std::size_t offset = sizeof(Header) + i * sizeof(Entry);
    if (offset > table.size() || sizeof(Entry) > table.size() - offset) break;
    Entry entry;
    std::memcpy(&entry, table.data() + offset, sizeof entry);
    if (string_at(entry.key) == file_name) paths.emplace_back(string_at(entry.value));
  }
  return paths;
}

struct Sanitizer {
  const char* name;
  // Part of the file name of each runtime: libasan.so.8, libclang_rt.asan-x86_64.so.
  const char* runtime;
  // A function that every instrumented library calls.
  const char* function;
  const char* options_variable;
  const char* options;
};
// Ranks do not detect leaks: they end without running the plugin's destructors.
constexpr Sanitizer kSanitizers[] = {
    {"AddressSanitizer", "asan", "__asan_init", "ASAN_OPTIONS", "abort_on_error=1:detect_leaks=0"},
    {"ThreadSanitizer", "tsan", "__tsan_init", "TSAN_OPTIONS", "abort_on_error=1:halt_on_error=1"},
};

#ifdef PLUGFEST_HAS_SANITIZER
constexpr bool kHasRuntime = true;
#else
constexpr bool kHasRuntime = false;
#endif

// The value of a variable, followed by the user's value: "first" or "first:user's".
std::string before_inherited(const char* variable, const std::string& first) {
  const char* inherited = std::getenv(variable);
  return inherited == nullptr || *inherited == '\0' ? first : fmt::format("{}:{}", first, inherited);
}

}  // namespace

std::vector<std::string> file_names(const std::string& name) {
  std::vector<std::string> names{name};
  const bool is_library = name.starts_with("lib") && name.ends_with(".so");
  if (name.find('/') == std::string::npos && !is_library) names.push_back("libnccl-net-" + name + ".so");
  return names;
}

bool names_main_program(const std::string& name) {
  return !name.empty() && ::strncasecmp(name.c_str(), "STATIC_PLUGIN", name.size()) == 0;
}

std::string find_library(const std::string& file_name) {
  if (file_name.find('/') != std::string::npos) return ::access(file_name.c_str(), F_OK) == 0 ? file_name : "";
  std::vector<std::string> candidates;
  if (const char* folders = std::getenv("LD_LIBRARY_PATH"); folders != nullptr && *folders != '\0')
    for (const std::string& folder : split(folders, ":;"))
      candidates.push_back((folder.empty() ? "." : folder) + "/" + file_name);
  for (std::string& path : cached_paths(file_name)) candidates.push_back(std::move(path));
  for (const char* folder : kSystemFolders) candidates.push_back(std::string(folder) + "/" + file_name);
  for (std::string& path : candidates)
    if (search_ends_at(path)) return std::move(path);
  return "";
}

std::string resolve(const std::string& name) {
  if (name.empty()) throw LoadError("no plugin: the name is empty");
  if (names_main_program(name))
    throw LoadError(
        fmt::format("{}: NCCL looks for this in the main program (STATIC_PLUGIN), which has no plugin; for a "
                    "file of that name write ./{}",
                    name, name));
  if (::strcasecmp(name.c_str(), "none") == 0) throw LoadError(fmt::format("{}: NCCL loads no external plugin", name));
  const std::vector<std::string> files = file_names(name);
  for (const std::string& file : files) {
    std::string path = find_library(file);
    if (!path.empty()) return path;
  }
  if (name.find('/') != std::string::npos) throw LoadError(name + ": no such file");
  const std::string tried = files.size() == 1 ? "it is not" : fmt::format("neither it nor {} is", files[1]);
  const std::string here =
      ::access(name.c_str(), F_OK) == 0 ? fmt::format("; for the file in this folder write ./{}", name) : "";
  throw LoadError(fmt::format(
      "{}: no such library: {} in LD_LIBRARY_PATH, the loader's cache or the system's folders{}", name, tried, here));
}

std::vector<std::pair<std::string, std::string>> sanitizer_environment(const std::string& path) try {
  const ElfFile file(path);
  if (kHasRuntime) return {};
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
} catch (const ElfError& error) {
  throw LoadError(fmt::format("{}: {}", path, error.what()));
}

}  // namespace plugfest::plugin
