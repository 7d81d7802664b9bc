#include "conformance/rules/library_check.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

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
      if (symbol.reach != plugin::SymbolReach::kExported)
        return fmt::format("{} is hidden or local, expected default visibility: dlsym does not find it", symbol.name);
      if (symbol.type != plugin::SymbolType::kObject)
        return fmt::format("{} is not data, expected the struct itself", symbol.name);
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
  for (const plugin::SlotLayout& slot : plugin::api_layout(rank.library().interface, rank.api()).slots)
    if (!slot.may_be_null && !rank.has_function(slot.name)) missing.emplace_back(slot.name);
  return missing;
}

namespace {

// Whether the members that exist in every version have the values of a real device.
bool plausible(control::PropertiesOutcome properties, int api) {
  const plugin::ApiLayout& layout = plugin::api_layout(api);
  properties.fields.clear();
  for (const plugin::FieldLayout& field : layout.properties) {
    if (field.offset + field.size > properties.bytes.size()) continue;
    properties.fields.push_back({std::string(field.name), field.offset, field.size});
  }
  const auto within = [&](const char* field, std::int64_t first, std::int64_t last) {
    return !properties.has(field) || (properties.integer(field) >= first && properties.integer(field) <= last);
  };
  const float latency = properties.real("latency");
  return within("speed", 100, 3'200'000) && within("port", 0, 255) && within("maxComms", 1, 1 << 24) &&
         within("maxRecvs", 1, 64) && within("regIsGlobal", 0, 1) && within("forceFlush", 0, 1) &&
         (latency == 0 || (std::isfinite(latency) && latency > 1e-6F && latency < 1e6F));
}

}  // namespace

std::string version_hint(const control::PropertiesOutcome& properties, int api) {
  if (plausible(properties, api)) return "";
  for (int distance = 1; distance <= plugin::kNewestApi - plugin::kOldestApi; ++distance) {
    for (const int other : {api - distance, api + distance}) {
      if (other < plugin::kOldestApi || other > plugin::kNewestApi) continue;
      if (plausible(properties, other))
        return fmt::format("; the values belong to a v{} structure: wrong struct version?", other);
    }
  }
  return "";
}

std::vector<std::string> device_names(control::Rank& rank) {
  std::vector<std::string> names;
  for (int index = 0, count = rank.devices(); index < count; ++index)
    names.push_back(rank.properties(control::Device{index}).name);
  return names;
}

}  // namespace plugfest::conformance
