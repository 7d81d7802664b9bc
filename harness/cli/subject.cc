#include "harness/cli/subject.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/personality.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "harness/bed/test_bed.h"
#include "harness/plugin/inspect.h"
#include "harness/plugin/nccl.h"
#include "harness/plugin/resolve.h"

namespace plugfest::cli {
namespace {

// Makes personality() return the current setting without a change.
constexpr unsigned long kAsItIs = 0xffffffff;

std::string bundled_file() { return bed::library_folder() + "/libnccl-net-mesh.so"; }

// The file of the plugin that the user named. Errors: as plugin::resolve().
std::string file_of(const std::string& named) {
  const std::string bundled = bundled_file();
  if (named.empty()) return bundled;
  if (named.find('/') != std::string::npos || std::filesystem::exists(named)) return named;
  try {
    return plugin::resolve(named);
  } catch (const std::runtime_error&) {
    if (named == "mesh") return bundled;
    throw;
  }
}

// The number in "v8" or "8". Errors: std::runtime_error unless it is `least` or more.
int version_number(const std::string& asked, int least) {
  const std::string digits = asked.front() == 'v' ? asked.substr(1) : asked;
  const bool is_number =
      !digits.empty() && digits.size() < 4 && digits.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number || std::stoi(digits) < least)
    throw std::runtime_error(fmt::format("--api \"{}\": expected a version such as v8, or all", asked));
  return std::stoi(digits);
}

}  // namespace

Plugin find_plugin(const std::string& named, bool needs_net) {
  if (plugin::is_builtin(named)) {
    const plugin::Builtin builtin = plugin::load_builtin(named);
    dlclose(builtin.library);
    Plugin plugin{.load = named, .library = {}, .apis = {}};
    (builtin.kind == plugin::InterfaceKind::kNet ? plugin.apis : plugin.others[builtin.kind]) = {builtin.api};
    if (needs_net && plugin.apis.empty())
      throw std::runtime_error(
          fmt::format("{}: has no net interface, which this command needs: see {} run", named, program_as_typed()));
    return plugin;
  }
  const std::string path = file_of(named);
  const plugin::Inspection inspection = plugin::inspect(path);
  std::map<plugin::InterfaceKind, std::vector<int>> others;
  for (const plugin::Interface& interface : plugin::interfaces()) {
    std::vector<int> apis = inspection.apis(interface.kind);
    std::reverse(apis.begin(), apis.end());
    if (interface.kind != plugin::InterfaceKind::kNet && !apis.empty()) others[interface.kind] = std::move(apis);
  }
  if (needs_net || others.empty()) plugin::choose_api(inspection, 0);  // throws if the library has no version
  for (const auto& [variable, value] : plugin::sanitizer_environment(path)) {
    // Older runtimes of ThreadSanitizer support only the address layout of older kernels. Ranks inherit the setting.
    if (variable == "TSAN_OPTIONS") personality(static_cast<unsigned long>(personality(kAsItIs)) | ADDR_NO_RANDOMIZE);
  }
  std::vector<int> apis = inspection.net_apis();
  std::reverse(apis.begin(), apis.end());
  const std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  return {.load = absolute, .library = absolute, .apis = std::move(apis), .others = std::move(others)};
}

bool is_bundled(const Plugin& plugin) {
  std::error_code ignored;
  return !plugin.library.empty() && std::filesystem::equivalent(plugin.library, bundled_file(), ignored);
}

std::string default_job_topology(const Plugin& plugin) {
  if (is_bundled(plugin)) return "triangle";
  fmt::print(
      stderr,
      "plugfest: topology star:3, which has one subnet: on triangle, NCCL connects devices of different subnets, "
      "and a plugin has to route between them; -t triangle tests that\n");
  return "star:3";
}

std::vector<PluginVersion> choose_versions(const Plugin& plugin, const std::string& interface,
                                           const std::string& asked) {
  std::vector<PluginVersion> versions;
  bool known = interface.empty();
  std::vector<std::string_view> names;
  for (const plugin::Interface& candidate : plugin::interfaces()) {
    if (candidate.oldest == 0) continue;
    names.push_back(candidate.name);
    if (!interface.empty() && candidate.name != interface) continue;
    known = true;
    const bool is_net = candidate.kind == plugin::InterfaceKind::kNet;
    const auto other = plugin.others.find(candidate.kind);
    const bool has = is_net ? !plugin.apis.empty() : other != plugin.others.end();
    if (!has && !interface.empty()) {
      if (!plugin.library.empty()) plugin::choose_api(plugin::inspect(plugin.library), 0, candidate.kind);  // throws
      throw std::runtime_error(fmt::format("--interface {}: {} has no such interface", interface, plugin.load));
    }
    if (!has) continue;
    if (is_net) {
      for (const int api : choose_apis(plugin, asked)) versions.push_back({candidate.kind, api});
    } else if (asked.empty()) {
      versions.push_back({candidate.kind, other->second.front()});
    } else if (asked == "all") {
      for (const int api : other->second) versions.push_back({candidate.kind, api});
    } else if (plugin.library.empty()) {
      const int only = other->second.front(), api = version_number(asked, 1);
      if (api != only)
        throw std::runtime_error(fmt::format("{}: no {} v{}: it has v{}", plugin.load, candidate.name, api, only));
      versions.push_back({candidate.kind, only});
    } else {
      const int api = plugin::choose_api(plugin::inspect(plugin.library), version_number(asked, 1), candidate.kind);
      versions.push_back({candidate.kind, api});
    }
    if (!asked.empty() && asked != "all") break;
  }
  if (!known)
    throw std::runtime_error(
        fmt::format("--interface \"{}\": expected one of {}, all", interface, fmt::join(names, ", ")));
  return versions;
}

ReleaseUse use_by_release(const Plugin& plugin, const std::string& named, const std::string& interface) {
  const plugin::Release* const release = plugin::find_release(named);
  if (release == nullptr)
    throw std::runtime_error(
        fmt::format("--for \"{}\": expected a release of NCCL, such as nccl-2.30.7; the nearest known "
                    "ones: {}",
                    named, plugin::nearest_releases(named)));
  if (plugin.library.empty())
    throw std::runtime_error(fmt::format("--for: {} is a part of NCCL, not a library: leave out --for", plugin.load));
  const plugin::Inspection library = plugin::inspect(plugin.library);
  ReleaseUse use{.release = release, .versions = {}, .unused = {}};
  bool has_net = false;
  std::vector<std::string> exports, looks_for, not_tested;
  for (const plugin::Interface& candidate : plugin::interfaces()) {
    const std::vector<int> exported = library.exported_versions(candidate.kind);
    const auto [oldest, newest] = release->of(candidate.kind);
    if (newest != 0) {
      looks_for.push_back(fmt::format("{} v{}", candidate.title, oldest));
      if (newest != oldest) looks_for.back() += fmt::format(" to v{}", newest);
    }
    if (exported.empty()) continue;
    exports.push_back(fmt::format("{} {}", candidate.title, plugin::versions_text(exported)));
    int version = release->choose(candidate.kind, exported);
    if (candidate.kind == plugin::InterfaceKind::kNet) has_net = version != 0;
    // NCCL closes a library without a net before it looks for a CollNet.
    if (candidate.kind == plugin::InterfaceKind::kCollNet && !has_net) version = 0;
    if (version == 0) use.unused.push_back(exports.back());
    if (version == 0 || candidate.oldest == 0 || (!interface.empty() && candidate.name != interface)) continue;
    if (version < candidate.oldest || version > candidate.newest)
      not_tested.push_back(fmt::format("{}: NCCL {} loads {} v{} of it, and plugfest tests v{} to v{}", plugin.library,
                                       release->name, candidate.title, version, candidate.oldest, candidate.newest));
    else
      use.versions.push_back({candidate.kind, version});
  }
  if (use.versions.empty() && !not_tested.empty()) throw std::runtime_error(not_tested.front());
  for (const std::string& line : not_tested) fmt::print(stderr, "plugfest: {}\n", line);
  if (!use.versions.empty()) return use;
  choose_versions(plugin, interface, "");  // throws if there is no such interface
  throw std::runtime_error(fmt::format("{}: NCCL {} loads {} of it: it exports {}, and NCCL {} looks for {}",
                                       plugin.library, release->name, interface.empty() ? "nothing" : "no " + interface,
                                       fmt::join(exports, "; "), release->name, fmt::join(looks_for, ", ")));
}

void require_one_api(const std::string& asked) {
  if (asked == "all") throw std::runtime_error("--api all: expected one version such as v8");
}

std::vector<int> choose_apis(const Plugin& plugin, const std::string& asked) {
  if (asked == "all") return plugin.apis;
  if (asked.empty()) return {plugin.apis.front()};
  const int api = version_number(asked, 0);
  if (api < plugin::kOldestApi || api > plugin::kNewestApi) {
    throw std::runtime_error(
        fmt::format("--api {}: supported net versions are v{} to v{}", asked, plugin::kOldestApi, plugin::kNewestApi));
  }
  if (!plugin.library.empty()) return {plugin::choose_api(plugin::inspect(plugin.library), api)};
  if (plugin.apis != std::vector{api})
    throw std::runtime_error(fmt::format("{}: no net v{}: it has v{}", plugin.load, api, plugin.apis.front()));
  return {api};
}

}  // namespace plugfest::cli
