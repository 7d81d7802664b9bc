// Looks where modprobe looks.
#include "fabric/rxe/module.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <iterator>

namespace plugfest::rxe {
namespace {

namespace fs = std::filesystem;

bool lists_the_module(const fs::path& file) {
  std::ifstream stream(file);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  return text.find(fmt::format("/{}.ko", kModule)) != std::string::npos;
}

}  // namespace

bool is_loaded() { return fs::exists(fmt::format("/sys/module/{}", kModule)); }

std::string why_absent(const std::string& release, const fs::path& modules) {
  const fs::path folder = modules / release;
  if (lists_the_module(folder / "modules.dep") || lists_the_module(folder / "modules.builtin")) return "";
  const std::string where = fs::exists(folder)
                                ? fmt::format("there is no {} in {}", kModule, folder.string())
                                : fmt::format("there is no folder {}, so none of its modules", folder.string());
  return fmt::format(
      "kernel {} cannot make rxe devices: {}: take --nic vm, which boots a kernel that can; plugfest doctor knows the "
      "package that brings it, if one does",
      release, where);
}

std::string kernel_release() {
  utsname name = {};
  uname(&name);
  return name.release;
}

}  // namespace plugfest::rxe
