#include "harness/testbed/library_folder.h"

#include <filesystem>

namespace plugfest::testbed {

std::string library_folder() {
  return (std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "lib").string();
}

}  // namespace plugfest::testbed
