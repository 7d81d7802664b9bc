#include "fabric/guest/archive.h"

#include <fmt/format.h>

#include <utility>

namespace plugfest::guest {

void Archive::add(std::string_view path, unsigned mode, std::string_view content) {
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

std::string Archive::finish() {
  add("TRAILER!!!", 0, {});
  return std::exchange(bytes_, {});
}

}  // namespace plugfest::guest
