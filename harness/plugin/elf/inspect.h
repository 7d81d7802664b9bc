// What a plugin's file says of itself, read without running any of its code.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest::plugin {

/// Why something cannot be used as a plugin: one line, which begins with the plugin's name or path.
class LoadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class SymbolType : std::uint8_t { kObject, kFunction, kOther };
/// Where a symbol can be seen. kExported: by dlsym. kHidden: it has hidden visibility. kLocal: it is static, or a
/// version script keeps it in. Of the last two a stripped file knows nothing.
enum class SymbolReach : std::uint8_t { kExported, kHidden, kLocal };

/// A symbol whose name speaks of NCCL: it holds "ncclNet", "ncclCollNet", "ncclGin", "ncclRma", "ncclProfiler_v",
/// "ncclTunerPlugin" or "ncclEnvPlugin".
struct PluginSymbol {
  std::string name;
  SymbolType type = SymbolType::kOther;
  SymbolReach reach = SymbolReach::kExported;
  /// st_size in bytes; 0 when the file does not say.
  std::uint64_t size = 0;
};

struct Inspection {
  /// As given to inspect().
  std::string path;
  /// DT_SONAME, or empty; DT_NEEDED in order.
  std::string soname;
  std::vector<std::string> needed;
  std::vector<PluginSymbol> symbols;

  /// The exported symbol `name`, or null.
  const PluginSymbol* exported(std::string_view name) const;
  /// Versions from kOldestApi to kNewestApi whose symbol is an exported object, ascending.
  std::vector<int> net_apis() const;
};

/// Reads a shared library of this machine's kind. `path` is a path of the file system and is not searched for.
///
/// Errors: LoadError when there is no such file, or it is not a shared library that this process could load. Any
/// content is safe: every offset is checked against the file's size.
Inspection inspect(const std::string& path);

/// The net version to use: `wanted`, or with 0 the newest, as NCCL's loader would.
/// Errors: LoadError that tells what the library exports instead and what its author should change.
int choose_api(const Inspection& inspection, int wanted);

}  // namespace plugfest::plugin
