// Which files of a kernel's module folder have to be loaded, and in which order.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fabric/guest/kernel.h"

namespace plugfest::guest {

/// `folder`: /lib/modules/VERSION. Files of the named modules with what they depend on, each after those that it needs.
/// Errors: std::runtime_error naming the required module that is neither there nor built in.
std::vector<std::filesystem::path> modules_in_order(const std::filesystem::path& folder, const ModuleNames& names);

/// The module itself, unpacked if it is compressed (.ko.xz, .ko.zst). Errors: std::runtime_error.
std::string module_content(const std::filesystem::path& file);

}  // namespace plugfest::guest
