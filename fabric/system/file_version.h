// Detects changes of a file.
#pragma once

#include <sys/stat.h>

#include <filesystem>

namespace plugfest {

/// Remembers the inode, size and modification time of a file.
class FileVersion {
 public:
  /// Returns true if the file has changed since the previous call. First call: true if the file exists.
  bool changed(const std::filesystem::path& file) {
    struct stat now = {};
    if (stat(file.c_str(), &now) != 0) now = {};
    const bool same = now.st_dev == seen_.st_dev && now.st_ino == seen_.st_ino && now.st_size == seen_.st_size &&
                      now.st_mtim.tv_sec == seen_.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec;
    seen_ = now;
    return !same;
  }
  /// Whether the file existed at the last call of changed().
  bool exists() const { return seen_.st_ino != 0; }

 private:
  struct stat seen_ = {};
};

}  // namespace plugfest
