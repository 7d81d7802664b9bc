// The subject: the plugin that the user named, its file and its versions. It is checked before a fabric is built.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/plugin/layout.h"
#include "harness/plugin/releases.h"

namespace plugfest::cli {

struct Plugin {
  /// The name for ranks: the absolute path of a file, or "nccl:IB".
  std::string load;
  /// The library's file; empty for a transport built into NCCL.
  std::string library;
  /// The versions of its net interface, newest first.
  std::vector<int> apis;
  /// The versions of its other interfaces for which rules exist.
  std::map<plugin::InterfaceKind, std::vector<int>> others = {};
};

struct PluginVersion {
  plugin::InterfaceKind interface = plugin::InterfaceKind::kNet;
  int api = 0;
};

/// `named`: a path, a name as in NCCL_NET_PLUGIN, "nccl:IB", "nccl:Socket", or empty for the bundled mesh plugin.
/// "mesh" also names the bundled plugin unless another plugin of that name is installed.
/// `needs_net`: whether to refuse a library without a net interface even if it has another interface.
/// For a plugin with ThreadSanitizer, processes that start afterwards have fixed addresses.
/// Errors: std::runtime_error with the reason why the plugin cannot be used.
Plugin find_plugin(const std::string& named, bool needs_net = true);

bool is_bundled(const Plugin& plugin);

/// The topology without -t in which all ranks connect to each other, as in a job of NCCL: triangle for the bundled
/// plugin, which routes between subnets. For other plugins star:3, with a line on standard error.
std::string default_job_topology(const Plugin& plugin);

/// Returns the versions to run. `asked`: "" (the newest), "v8", "8" or "all". Errors: std::runtime_error.
std::vector<int> choose_apis(const Plugin& plugin, const std::string& asked);
/// For commands that test one version. Errors: std::runtime_error if `asked` is "all".
void require_one_api(const std::string& asked);

/// Returns the versions to run of all interfaces that the plugin has, the net first. `interface`: only this interface;
/// "": all. `asked`: see choose_apis(); a number is a version of `interface`, or of the first interface that the plugin
/// has. Errors: std::runtime_error.
std::vector<PluginVersion> choose_versions(const Plugin& plugin, const std::string& interface,
                                           const std::string& asked);

/// What a release of NCCL does with a library.
struct ReleaseUse {
  const plugin::Release* release = nullptr;  ///< null: none was named
  /// The versions that it loads, of the interfaces for which rules exist, the net first.
  std::vector<PluginVersion> versions = {};
  /// The interfaces of the library that it does not use, with their versions: "GIN v11".
  std::vector<std::string> unused = {};
};

/// `named`: "nccl-2.30.7". `interface`: selects the versions of one interface; "": of all. Errors:
/// std::runtime_error, including if the release loads none of these versions.
ReleaseUse use_by_release(const Plugin& plugin, const std::string& named, const std::string& interface);

}  // namespace plugfest::cli
