#include "harness/bed/library_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace plugfest::bed {

std::string library_folder() {
  return (std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "lib").string();
}

void search_first_in(const std::string& name, control::Environment& environment) {
  constexpr const char* kVariable = "LD_LIBRARY_PATH";
  std::string folders = library_folder() + "/" + name;
  if (folders.find_first_of(":;") != std::string::npos) {
    throw std::runtime_error(fmt::format(
        "{}: LD_LIBRARY_PATH cannot express a path with : or ;: build plugfest in another folder", folders));
  }
  auto variable =
      std::find_if(environment.begin(), environment.end(), [](const auto& one) { return one.first == kVariable; });
  if (variable == environment.end()) {
    const char* const inherited = std::getenv(kVariable);
    variable = environment.emplace(variable, kVariable, inherited == nullptr ? "" : inherited);
  }
  // An empty entry would mean the current folder.
  const std::string others = variable->second.value_or("");
  variable->second = others.empty() ? folders : folders + ":" + others;
}

}  // namespace plugfest::bed
