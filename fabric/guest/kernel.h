// Finds or downloads the kernel of a guest.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fabric/guest/modules.h"

namespace plugfest::guest {

struct Kernel {
  std::filesystem::path image;
  std::string version;  ///< the output of `uname -r`: "6.1.0-18-amd64"
  /// Files of the requested modules and their dependencies, in load order.
  std::vector<std::filesystem::path> modules;
};

/// Finds a kernel with these modules. If `path` is set, tries the image or unpacked package at `path`, with modules in
/// the package or in /lib/modules. Then tries an installed kernel and a kernel in cache_folder(). At last, downloads
/// the distribution's kernel package to cache_folder(), which needs no privileges.
///
/// `report_progress`: gets one line of text before a download. Errors: std::runtime_error, one line with the missing
/// part and a remedy.
Kernel find_kernel(const std::optional<std::filesystem::path>& path, const ModuleNames& modules,
                   const std::function<void(const std::string&)>& report_progress);

/// $XDG_CACHE_HOME/plugfest or ~/.cache/plugfest; /var/tmp/plugfest-UID if the home folder is not writable.
std::filesystem::path cache_folder();

}  // namespace plugfest::guest
