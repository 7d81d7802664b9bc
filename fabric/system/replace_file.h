// Atomic replacement of a file.
#pragma once

#include <filesystem>
#include <string_view>

namespace plugfest {

/// Replaces `file` by one with the content `text` (mode 0644): readers see the old or the new content. Returns false,
/// with errno set, if it cannot be written. Thread safety: any thread, also for the same file.
bool replace_file(const std::filesystem::path& file, std::string_view text);

}  // namespace plugfest
