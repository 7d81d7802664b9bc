// The kernel package of the running distribution, fetched and unpacked without installing it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "fabric/guest/kernel.h"

namespace plugfest::guest {

/// Puts boot/ and, of lib/modules/, what `modules` need of the newest stock kernel into `folder`, which appears whole
/// or not at all. What an earlier call left behind when it was killed is removed. `say` is told when a download begins.
/// Errors: std::runtime_error, one line.
void fetch_kernel_package(const std::filesystem::path& folder, const ModuleNames& modules,
                          const std::function<void(const std::string&)>& say);

}  // namespace plugfest::guest
