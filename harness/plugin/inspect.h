// Determines which plugins a file exports, without running any of its code.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "harness/plugin/layout.h"

namespace plugfest::plugin {

/// Why a file or a name cannot be used as a plugin: one line that begins with the plugin's name or path.
class LoadError : public std::runtime_error {
 public:
  explicit LoadError(const std::string& what, std::string missing = {})
      : std::runtime_error(what), missing_(std::move(missing)) {}
  /// The library that the loader did not find; empty for other causes.
  const std::string& missing() const { return missing_; }

 private:
  std::string missing_;
};

enum class SymbolType : std::uint8_t { kObject, kFunction, kOther };
/// kExported: dlsym finds the symbol. kHidden: its visibility is hidden. kLocal: it is static, or a version script
/// makes it local. Stripped files contain exported symbols only.
enum class SymbolReach : std::uint8_t { kExported, kHidden, kLocal };

/// A symbol whose name contains "ncclNet", "ncclCollNet", "ncclGin", "ncclRma", "ncclProfiler_v",
/// "ncclTunerPlugin" or "ncclEnvPlugin".
struct PluginSymbol {
  std::string name;
  SymbolType type = SymbolType::kOther;
  SymbolReach reach = SymbolReach::kExported;
  /// st_size in bytes; 0 when the file does not contain it.
  std::uint64_t size = 0;
};

struct Inspection {
  std::string path;
  /// DT_SONAME, which may be empty, and DT_NEEDED in order.
  std::string soname;
  std::vector<std::string> needed;
  std::vector<PluginSymbol> symbols;

  const PluginSymbol* exported(std::string_view name) const;
  /// The versions of an interface whose symbol is exported, whether Plugfest knows them or not, ascending.
  std::vector<int> exported_versions(InterfaceKind kind) const;
  /// The versions of an interface that Plugfest knows and whose symbol is an exported object, ascending.
  std::vector<int> apis(InterfaceKind kind) const;
  std::vector<int> net_apis() const { return apis(InterfaceKind::kNet); }
};

/// "v6, v8".
std::string versions_text(const std::vector<int>& versions);

/// Reads the shared library at `path`, without a search. Errors: LoadError when the file does not exist, or is not a
/// shared library that this process could load.
Inspection inspect(const std::string& path);

/// The version to use: `wanted`, or the newest that the library exports if `wanted` is 0, as in NCCL's loader. Errors:
/// LoadError with the exports of the library and advice for its author.
int choose_api(const Inspection& inspection, int wanted, InterfaceKind kind = InterfaceKind::kNet);

}  // namespace plugfest::plugin
