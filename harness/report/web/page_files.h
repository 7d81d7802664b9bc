// The scripts and style sheets of the HTML page, and the license of uPlot, which each copy includes. The build
// generates them from the files of this folder (embed.cmake).
#pragma once

#include <string_view>
#include <vector>

namespace plugfest::report {

struct PageFile {
  std::string_view name;     ///< "style.css"
  std::string_view content;  ///< UTF-8
  std::string_view sha256;   ///< of `content`, 64 hexadecimal digits
};

/// The files in the order of the page.
const std::vector<PageFile>& page_files();

}  // namespace plugfest::report
