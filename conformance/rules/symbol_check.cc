#include "conformance/rules/symbol_check.h"

#include <fmt/format.h>

#include "harness/plugin/layout.h"

namespace plugfest::conformance {

std::optional<std::string> flaw_of_symbols(const std::string& library, plugin::InterfaceKind kind) {
  const plugin::Interface& interface = plugin::interface_of(kind);
  const plugin::Inspection inspection = plugin::inspect(library);
  bool found = false;
  for (int version = interface.oldest; version <= interface.newest; ++version) {
    const plugin::ApiLayout& layout = plugin::api_layout(kind, version);
    for (const plugin::PluginSymbol& symbol : inspection.symbols) {
      if (symbol.name != layout.symbol) continue;
      found = true;
      if (symbol.reach != plugin::SymbolReach::kExported) {
        return fmt::format("{} is hidden or local, expected default visibility: dlsym does not find it", symbol.name);
      }
      if (symbol.type != plugin::SymbolType::kObject) {
        return fmt::format("{} is not data, expected the struct itself", symbol.name);
      }
      if (symbol.size != 0 && symbol.size != layout.table_size) {
        return fmt::format("{} has {} bytes, expected {}, the size of the struct that NCCL reads", symbol.name,
                           symbol.size, layout.table_size);
      }
    }
  }
  if (found) return std::nullopt;
  return fmt::format("the library has no symbol {}N, expected one for each version", interface.symbol_prefix);
}

std::vector<std::string> missing_functions(control::Rank& rank) {
  std::vector<std::string> missing;
  for (const plugin::SlotLayout& slot : plugin::api_layout(rank.library().interface, rank.api()).slots) {
    if (!slot.may_be_null && !rank.has_function(slot.name)) missing.emplace_back(slot.name);
  }
  return missing;
}

}  // namespace plugfest::conformance
