// Downloads and unpacks the kernel package of the running distribution, without installing it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "fabric/guest/kernel.h"

namespace plugfest::guest {

/// Unpacks boot/ and the files of `modules` in lib/modules/ of the newest stock kernel to `folder`, which is created
/// completely or not at all. Removes partial files of an earlier call that was killed. `report_progress`: gets one line
/// of text when a download begins. Errors: std::runtime_error, one line.
void fetch_kernel_package(const std::filesystem::path& folder, const ModuleNames& modules,
                          const std::function<void(const std::string&)>& report_progress);

}  // namespace plugfest::guest
