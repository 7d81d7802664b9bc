// The first file system of a guest, as the kernel unpacks it: a cpio archive of the form "newc".
#pragma once

#include <string>
#include <string_view>

namespace plugfest::guest {

class Archive {
 public:
  void add_folder(std::string_view path) { add(path, 0040755, {}); }
  void add_file(std::string_view path, std::string_view content) { add(path, 0100644, content); }
  void add_program(std::string_view path, std::string_view content) { add(path, 0100755, content); }

  /// All of it, with the trailer. To be called once, last.
  std::string finish();

 private:
  void add(std::string_view path, unsigned mode, std::string_view content);

  std::string bytes_;
  unsigned entries_ = 0;
};

}  // namespace plugfest::guest
