// The modules of a guest's kernel: finds their files and dependencies, and reads them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace plugfest::guest {

/// Names of kernel modules. A module that is built into the kernel counts as present.
struct ModuleNames {
  std::vector<std::string> required;
  std::vector<std::string> optional;
};

/// Returns the files of the named modules and their dependencies, each after its dependencies. `folder`:
/// /lib/modules/VERSION. Errors: std::runtime_error that names a required module that is neither present nor built in.
std::vector<std::filesystem::path> modules_in_order(const std::filesystem::path& folder, const ModuleNames& names);

/// The content of a module, decompressed if necessary (.ko.xz, .ko.zst). Errors: std::runtime_error.
std::string module_content(const std::filesystem::path& file);

}  // namespace plugfest::guest
