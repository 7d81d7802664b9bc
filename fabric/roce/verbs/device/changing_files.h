// The files of the sysfs view that change while programs run.
#pragma once

#include <filesystem>
#include <string>

namespace plugfest::roce {

/// Replaces a file as a whole: whoever reads it sees the text before or this one. False if it cannot be written.
/// Thread safety: any thread.
bool replace_file(const std::filesystem::path& file, const std::string& text);

/// `ports/1/state` and `phys_state` of a device. False if they cannot be written.
bool write_port_state(const std::filesystem::path& device_folder, bool up);

}  // namespace plugfest::roce
