// Searches the lists that modprobe searches.
#include "fabric/rxe/module.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <iterator>

namespace plugfest::rxe {
namespace {

namespace fs = std::filesystem;

bool lists_module(const fs::path& file) {
  std::ifstream stream(file);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  return text.find(fmt::format("/{}.ko", kModule)) != std::string::npos;
}

}  // namespace

bool is_loaded() { return fs::exists(fmt::format("/sys/module/{}", kModule)); }

std::string explain_missing_module(const std::string& release, const fs::path& modules) {
  const fs::path folder = modules / release;
  if (lists_module(folder / "modules.dep") || lists_module(folder / "modules.builtin")) return "";
  const std::string where = fs::exists(folder) ? fmt::format("{} is not in {}", kModule, folder.string())
                                               : fmt::format("the folder {} does not exist", folder.string());
  return fmt::format(
      "kernel {} has no module for rxe devices: {}: use --nic vm, which boots a kernel with the module, or run "
      "plugfest "
      "doctor, which names the package if one exists",
      release, where);
}

std::string kernel_release() {
  utsname name = {};
  uname(&name);
  return name.release;
}

}  // namespace plugfest::rxe
