// Tar archives (POSIX.1-1988 ustar) with one possible sequence of bytes for each list of files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plugfest::cluster {

struct ArchiveFile {
  /// At most 100 bytes, a relative path: "hosts/h1.json".
  std::string name;
  std::string content;
};

/// Owner 0, mode 0644, time 0; the files in order, and two empty blocks at the end. Errors: std::runtime_error for a
/// name that is too long.
std::string make_tar(const std::vector<ArchiveFile>& files);

/// Reads what make_tar() has written, which may come from anywhere. Errors: std::runtime_error if a byte differs from
/// what make_tar() writes for these files, or names repeat or leave the folder.
std::vector<ArchiveFile> read_tar(std::string_view tar);

}  // namespace plugfest::cluster
