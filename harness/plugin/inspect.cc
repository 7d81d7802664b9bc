#include "harness/plugin/inspect.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "harness/plugin/elf_file.h"
#include "harness/plugin/releases.h"

namespace plugfest::plugin {
namespace {

constexpr std::array<std::string_view, 7> kParts = {"ncclNet",      "ncclCollNet",     "ncclGin",      "ncclRma",
                                                    "ncclProfiler", "ncclTunerPlugin", "ncclEnvPlugin"};

SymbolType type_of(const ElfSymbol& symbol) {
  if (symbol.type == STT_OBJECT) return SymbolType::kObject;
  if (symbol.type == STT_FUNC || symbol.type == STT_GNU_IFUNC) return SymbolType::kFunction;
  return SymbolType::kOther;
}

// 8 for prefix "x_v" and name "x_v8"; -1 for anything else.
int version_after(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  int version = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), version);
  return error == std::errc{} && end == name.data() + name.size() ? version : -1;
}

// "2.26", the first minor release that looks up no version as old as `version`.
std::string first_without(InterfaceKind kind, int version) {
  for (const Release& release : releases())
    if (release.of(kind).oldest > version) return std::string(release.name.substr(0, release.name.rfind('.')));
  return "";
}

// Why NCCL cannot use a symbol that has the right name; empty if it can.
std::string flaw(const PluginSymbol& symbol) {
  switch (symbol.reach) {
    case SymbolReach::kExported:
      break;
    case SymbolReach::kHidden:
      return fmt::format("{} is hidden: give it __attribute__((visibility(\"default\")))", symbol.name);
    case SymbolReach::kLocal:
      // GNU ld makes hidden symbols local, so hidden and static symbols cannot be distinguished.
      return fmt::format(
          "{} is hidden, static, or made local by a version script: give it "
          "__attribute__((visibility(\"default\")))",
          symbol.name);
  }
  if (symbol.type == SymbolType::kObject) return "";
  return fmt::format("{} is {}; NCCL looks for a structure of that name", symbol.name,
                     symbol.type == SymbolType::kFunction ? "a function" : "neither data nor a function");
}

// Why the library has no usable symbol of that version although it has a similar one; empty if it has none.
std::string near_miss(const Inspection& inspection, const Interface& interface, int version) {
  const std::string wanted = fmt::format("{}{}", interface.symbol_prefix, version);
  for (const PluginSymbol& symbol : inspection.symbols)
    if (symbol.name == wanted) return flaw(symbol);
  const std::string mangled = fmt::format("{}{}", wanted.size(), wanted);
  std::string short_name = wanted;  // ncclNet_v8 for ncclNetPlugin_v8
  if (const std::size_t at = short_name.find("Plugin"); at != std::string::npos) short_name.erase(at, 6);
  for (const PluginSymbol& symbol : inspection.symbols) {
    // _ZL: static, or const without extern; _ZN: in a namespace.
    if (symbol.name == "_ZL" + mangled || (symbol.name.starts_with("_ZN") && symbol.name.ends_with(mangled + "E")))
      return fmt::format(
          "{} has the C++ name {}: declare it extern \"C\", neither static nor const nor in a "
          "namespace",
          wanted, symbol.name);
    if (short_name != wanted && symbol.name == short_name && symbol.reach == SymbolReach::kExported)
      return fmt::format("it exports {}, and NCCL looks for {}", short_name, wanted);
  }
  return "";
}

std::string first_near_miss(const Inspection& inspection, const Interface& interface) {
  for (int version = interface.newest; version >= interface.oldest; --version) {
    std::string reason = near_miss(inspection, interface, version);
    if (!reason.empty()) return reason;
  }
  return "";
}

[[noreturn]] void refuse(const Inspection& inspection, const std::string& reason) {
  throw LoadError(fmt::format("{}: {}", inspection.path, reason));
}

// "net plugin", "collnet plugin".
std::string plugin_text(const Interface& interface) { return fmt::format("{} plugin", interface.name); }

[[noreturn]] void refuse_for_no_version(const Inspection& inspection, const Interface& interface) {
  const std::vector<int> exported = inspection.exported_versions(interface.kind);
  if (!exported.empty() && exported.back() < interface.oldest)
    refuse(inspection,
           fmt::format("exports {} {} only, which NCCL {} and later refuse: build it for v{} or later", interface.name,
                       versions_text(exported), first_without(interface.kind, exported.back()), interface.oldest));
  if (!exported.empty() && exported.front() > interface.newest)
    refuse(inspection, fmt::format("exports {} {} only, and v{} is the newest that plugfest knows", interface.name,
                                   versions_text(exported), interface.newest));
  const std::string none = fmt::format("no {} symbol", plugin_text(interface));
  const std::string reason = first_near_miss(inspection, interface);
  if (!reason.empty()) refuse(inspection, fmt::format("{}: {}", none, reason));
  const std::string wanted =
      fmt::format("{} ({}{} to _v{})", none, interface.symbol_prefix, interface.oldest, interface.newest);
  for (const PluginSymbol& symbol : inspection.symbols) {
    const bool other = std::any_of(interfaces().begin(), interfaces().end(), [&](const Interface& candidate) {
      return version_after(symbol.name, candidate.symbol_prefix) >= 0;
    });
    if (symbol.reach == SymbolReach::kExported && other)
      refuse(inspection, fmt::format("{}: it exports {}, which is not {} {}", wanted, symbol.name,
                                     interface.kind == InterfaceKind::kEnv ? "an" : "a", plugin_text(interface)));
  }
  refuse(inspection, fmt::format("{}: not an NCCL {}", wanted, plugin_text(interface)));
}

}  // namespace

const PluginSymbol* Inspection::exported(std::string_view name) const {
  for (const PluginSymbol& symbol : symbols)
    if (symbol.reach == SymbolReach::kExported && symbol.name == name) return &symbol;
  return nullptr;
}

std::string versions_text(const std::vector<int>& versions) {
  std::vector<std::string> names;
  names.reserve(versions.size());
  for (const int version : versions) names.push_back(fmt::format("v{}", version));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<int> Inspection::exported_versions(InterfaceKind kind) const {
  std::vector<int> versions;
  for (const PluginSymbol& symbol : symbols)
    if (const int version = version_after(symbol.name, interface_of(kind).symbol_prefix);
        symbol.reach == SymbolReach::kExported && version >= 0)
      versions.push_back(version);
  std::sort(versions.begin(), versions.end());
  return versions;
}

std::vector<int> Inspection::apis(InterfaceKind kind) const {
  const Interface& interface = interface_of(kind);
  std::vector<int> apis;
  for (int api = interface.oldest; api != 0 && api <= interface.newest; ++api) {
    const PluginSymbol* symbol = exported(api_layout(kind, api).symbol);
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

int choose_api(const Inspection& inspection, int wanted, InterfaceKind kind) {
  const Interface& interface = interface_of(kind);
  const std::vector<int> apis = inspection.apis(kind);
  if (apis.empty()) refuse_for_no_version(inspection, interface);
  if (wanted == 0) return apis.back();
  if (std::find(apis.begin(), apis.end(), wanted) != apis.end()) return wanted;
  const std::string reason = near_miss(inspection, interface, wanted);
  refuse(inspection, fmt::format("no {} v{}: {}it exports {}", interface.name, wanted,
                                 reason.empty() ? "" : reason + "; ", versions_text(apis)));
}

}  // namespace plugfest::plugin
