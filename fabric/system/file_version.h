// Whether a file is still the one that was read.
#pragma once

#include <sys/stat.h>

#include <filesystem>

namespace plugfest {

class FileVersion {
 public:
  /// True if the file is another than at the last call, by what the kernel says of it, without reading it. At first an
  /// absent file counts as unchanged.
  bool changed(const std::filesystem::path& file) {
    struct stat now = {};
    if (stat(file.c_str(), &now) != 0) now = {};
    const bool same = now.st_dev == seen_.st_dev && now.st_ino == seen_.st_ino && now.st_size == seen_.st_size &&
                      now.st_mtim.tv_sec == seen_.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec;
    seen_ = now;
    return !same;
  }
  bool exists() const { return seen_.st_ino != 0; }

 private:
  struct stat seen_ = {};
};

}  // namespace plugfest
