// The archive that becomes the initial file system of a guest.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace plugfest::guest {

/// Builds the initial file system of a guest (initramfs) in memory: a cpio archive in the "newc" format.
class Archive {
 public:
  void add_folder(std::string_view path) { add(path, 0040755, {}); }
  void add_file(std::string_view path, std::string_view content) { add(path, 0100644, content); }
  void add_program(std::string_view path, std::string_view content) { add(path, 0100755, content); }

  /// Returns the complete archive. Call it once, after all entries have been added.
  std::string finish() {
    add("TRAILER!!!", 0, {});
    return std::exchange(bytes_, {});
  }

 private:
  void add(std::string_view path, unsigned mode, std::string_view content) {
    const auto pad = [this] { bytes_.resize((bytes_.size() + 3) / 4 * 4); };
    // Magic number, then fields of 8 hexadecimal digits: inode, mode, user, group, links, time, size, four device
    // numbers, name length, checksum.
    bytes_ += fmt::format("070701{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:032x}{:08x}{:08x}", ++entries_, mode, 0, 0,
                          1, 0, content.size(), 0, path.size() + 1, 0);
    bytes_.append(path).push_back('\0');
    pad();
    bytes_ += content;
    pad();
  }

  std::string bytes_;
  unsigned entries_ = 0;
};

}  // namespace plugfest::guest
