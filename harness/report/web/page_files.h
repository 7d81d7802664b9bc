// The scripts and style sheets of the HTML page, and the licence of uPlot, which goes with each copy. The build makes
// them from the files of this folder (embed.cmake).
#pragma once

#include <string_view>
#include <vector>

namespace plugfest::report {

struct PageFile {
  std::string_view name;     ///< "style.css"
  std::string_view content;  ///< UTF-8
  std::string_view sha256;   ///< of `content`, 64 hexadecimal digits
};

/// In the order in which the page has them.
const std::vector<PageFile>& page_files();

}  // namespace plugfest::report
