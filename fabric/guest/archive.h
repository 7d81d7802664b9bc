// The initial file system of a guest (initramfs): a cpio archive in the "newc" format.
#pragma once

#include <string>
#include <string_view>

namespace plugfest::guest {

/// Builds an archive in memory.
class Archive {
 public:
  void add_folder(std::string_view path) { add(path, 0040755, {}); }
  void add_file(std::string_view path, std::string_view content) { add(path, 0100644, content); }
  void add_program(std::string_view path, std::string_view content) { add(path, 0100755, content); }

  /// Returns the complete archive. Call it once, after all entries have been added.
  std::string finish();

 private:
  void add(std::string_view path, unsigned mode, std::string_view content);

  std::string bytes_;
  unsigned entries_ = 0;
};

}  // namespace plugfest::guest
