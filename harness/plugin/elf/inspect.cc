#include "harness/plugin/elf/inspect.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "harness/plugin/elf/elf_file.h"
#include "harness/plugin/layout.h"

namespace plugfest::plugin {
namespace {

constexpr std::string_view kNetPrefix = "ncclNetPlugin_v";
/// Other plugins, which core also takes from a library that exports a net plugin.
constexpr std::array<std::string_view, 6> kOtherPlugins = {"ncclCollNetPlugin_v", "ncclGinPlugin_v",
                                                           "ncclRmaPlugin_v",     "ncclProfiler_v",
                                                           "ncclTunerPlugin_v",   "ncclEnvPlugin_v"};
constexpr std::array<std::string_view, 7> kParts = {"ncclNet",      "ncclCollNet",     "ncclGin",      "ncclRma",
                                                    "ncclProfiler", "ncclTunerPlugin", "ncclEnvPlugin"};

SymbolType type_of(const ElfSymbol& symbol) {
  if (symbol.type == STT_OBJECT) return SymbolType::kObject;
  if (symbol.type == STT_FUNC || symbol.type == STT_GNU_IFUNC) return SymbolType::kFunction;
  return SymbolType::kOther;
}

/// 8 for prefix "x_v" and name "x_v8"; -1 for anything else.
int version_after(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  int version = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), version);
  return error == std::errc{} && end == name.data() + name.size() ? version : -1;
}

std::string versions_text(const std::vector<int>& versions) {
  std::vector<std::string> names;
  names.reserve(versions.size());
  for (const int version : versions) names.push_back(fmt::format("v{}", version));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Versions of all exported net symbols, known to Plugfest or not, ascending.
std::vector<int> exported_versions(const Inspection& inspection) {
  std::vector<int> versions;
  for (const PluginSymbol& symbol : inspection.symbols)
    if (symbol.reach == SymbolReach::kExported && version_after(symbol.name, kNetPrefix) >= 0)
      versions.push_back(version_after(symbol.name, kNetPrefix));
  std::sort(versions.begin(), versions.end());
  return versions;
}

/// Why NCCL cannot use a symbol that has the right name; empty if it can.
std::string flaw(const PluginSymbol& symbol) {
  switch (symbol.reach) {
    case SymbolReach::kExported:
      break;
    case SymbolReach::kHidden:
      return fmt::format("{} is hidden: give it __attribute__((visibility(\"default\")))", symbol.name);
    case SymbolReach::kLocal:
      // GNU ld makes hidden symbols local, so that hidden and static ones look alike.
      return fmt::format(
          "{} is hidden, static, or made local by a version script: give it "
          "__attribute__((visibility(\"default\")))",
          symbol.name);
  }
  if (symbol.type == SymbolType::kObject) return "";
  return fmt::format("{} is {}; NCCL looks for a structure of that name", symbol.name,
                     symbol.type == SymbolType::kFunction ? "a function" : "neither data nor a function");
}

/// Why the library has no usable ncclNetPlugin_v<version> although it has a similar symbol; empty if it has none.
std::string near_miss(const Inspection& inspection, int version) {
  const std::string wanted = fmt::format("{}{}", kNetPrefix, version);
  for (const PluginSymbol& symbol : inspection.symbols)
    if (symbol.name == wanted) return flaw(symbol);
  const std::string mangled = fmt::format("{}{}", wanted.size(), wanted);
  const std::string short_name = fmt::format("ncclNet_v{}", version);
  for (const PluginSymbol& symbol : inspection.symbols) {
    // _ZL: static, or const without extern; _ZN: in a namespace.
    if (symbol.name == "_ZL" + mangled || (symbol.name.starts_with("_ZN") && symbol.name.ends_with(mangled + "E")))
      return fmt::format(
          "{} has the C++ name {}: declare it extern \"C\", neither static nor const nor in a "
          "namespace",
          wanted, symbol.name);
    if (symbol.name == short_name && symbol.reach == SymbolReach::kExported)
      return fmt::format("it exports {}, and NCCL looks for {}", short_name, wanted);
  }
  return "";
}

std::string first_near_miss(const Inspection& inspection) {
  for (int version = kNewestApi; version >= kOldestApi; --version) {
    std::string reason = near_miss(inspection, version);
    if (!reason.empty()) return reason;
  }
  return "";
}

[[noreturn]] void refuse(const Inspection& inspection, const std::string& reason) {
  throw LoadError(fmt::format("{}: {}", inspection.path, reason));
}

[[noreturn]] void refuse_for_no_version(const Inspection& inspection) {
  const std::vector<int> exported = exported_versions(inspection);
  if (!exported.empty() && exported.back() < kOldestApi)
    refuse(inspection, fmt::format("exports net {} only, which NCCL 2.26 and later refuse: build it for v6 or later",
                                   versions_text(exported)));
  if (!exported.empty() && exported.front() > kNewestApi)
    refuse(inspection, fmt::format("exports net {} only, and v{} is the newest that plugfest knows",
                                   versions_text(exported), kNewestApi));
  const std::string reason = first_near_miss(inspection);
  if (!reason.empty()) refuse(inspection, "no net plugin symbol: " + reason);
  for (const PluginSymbol& symbol : inspection.symbols)
    for (const std::string_view prefix : kOtherPlugins)
      if (symbol.reach == SymbolReach::kExported && version_after(symbol.name, prefix) >= 0)
        refuse(inspection, fmt::format("no net plugin symbol (ncclNetPlugin_v{} to _v{}): it exports {}, which is no "
                                       "net plugin",
                                       kOldestApi, kNewestApi, symbol.name));
  refuse(inspection, fmt::format("no net plugin symbol (ncclNetPlugin_v{} to _v{}): not an NCCL net plugin", kOldestApi,
                                 kNewestApi));
}

}  // namespace

const PluginSymbol* Inspection::exported(std::string_view name) const {
  for (const PluginSymbol& symbol : symbols)
    if (symbol.reach == SymbolReach::kExported && symbol.name == name) return &symbol;
  return nullptr;
}

std::vector<int> Inspection::net_apis() const {
  std::vector<int> apis;
  for (int api = kOldestApi; api <= kNewestApi; ++api) {
    const PluginSymbol* symbol = exported(api_layout(api).symbol);
    if (symbol != nullptr && symbol->type == SymbolType::kObject) apis.push_back(api);
  }
  return apis;
}

Inspection inspect(const std::string& path) try {
  const ElfFile file(path);
  Inspection inspection{.path = path, .soname = file.soname(), .needed = file.needed(), .symbols = {}};
  std::map<std::string, PluginSymbol> by_name;
  const auto is_ours = [](const ElfSymbol& symbol) {
    return symbol.defined && std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
             return symbol.name.find(part) != std::string::npos;
           });
  };
  for (const ElfSymbol& symbol : file.dynamic_symbols("nccl")) {
    if (!is_ours(symbol) || symbol.binding == STB_LOCAL) continue;
    const bool visible = symbol.visibility == STV_DEFAULT || symbol.visibility == STV_PROTECTED;
    by_name[symbol.name] = {symbol.name, type_of(symbol), visible ? SymbolReach::kExported : SymbolReach::kHidden,
                            symbol.size};
  }
  for (const ElfSymbol& symbol : file.static_symbols("nccl")) {
    if (!is_ours(symbol) || by_name.contains(symbol.name)) continue;
    const bool hidden = symbol.visibility == STV_HIDDEN || symbol.visibility == STV_INTERNAL;
    by_name[symbol.name] = {symbol.name, type_of(symbol), hidden ? SymbolReach::kHidden : SymbolReach::kLocal,
                            symbol.size};
  }
  for (auto& [name, symbol] : by_name) inspection.symbols.push_back(std::move(symbol));
  return inspection;
} catch (const ElfError& error) {
  throw LoadError(fmt::format("{}: {}", path, error.what()));
}

int choose_api(const Inspection& inspection, int wanted) {
  const std::vector<int> apis = inspection.net_apis();
  if (apis.empty()) refuse_for_no_version(inspection);
  if (wanted == 0) return apis.back();
  if (std::find(apis.begin(), apis.end(), wanted) != apis.end()) return wanted;
  const std::string reason = near_miss(inspection, wanted);
  refuse(inspection,
         fmt::format("no net v{}: {}it exports {}", wanted, reason.empty() ? "" : reason + "; ", versions_text(apis)));
}

}  // namespace plugfest::plugin
