// Looks in one place after the other.
#include "fabric/guest/kernel.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "fabric/guest/modules.h"
#include "fabric/guest/package.h"

namespace plugfest::guest {
namespace {

namespace fs = std::filesystem;

// The version that an image carries, as the boot protocol of x86 has it: at 0x20e the place of the text less 0x200.
std::string version_of(const fs::path& image) {
  std::ifstream stream(image, std::ios::binary);
  if (!stream) throw std::runtime_error(fmt::format("{}: cannot be read: {}", image.string(), std::strerror(errno)));
  char magic[4] = {};
  std::uint16_t place = 0;
  stream.seekg(0x202).read(magic, sizeof(magic));
  stream.seekg(0x20e).read(reinterpret_cast<char*>(&place), sizeof(place));
  if (!stream || std::memcmp(magic, "HdrS", 4) != 0) {
    throw std::runtime_error(
        fmt::format("{}: not a Linux kernel image such as /boot/vmlinuz-6.1.0-18-amd64", image.string()));
  }
  std::string version;
  stream.seekg(place + 0x200) >> version;
  return version;
}

Kernel kernel_of(const fs::path& image, const ModuleNames& modules) {
  const std::string version = version_of(image);
  const fs::path unpacked = fs::absolute(image).parent_path().parent_path() / "lib" / "modules" / version;
  const fs::path folder = fs::exists(unpacked) ? unpacked : fs::path("/lib/modules") / version;
  return {image, version, modules_in_order(folder, modules)};
}

// Images under a folder, the newest last by the order of their names.
std::vector<fs::path> images_in(const fs::path& folder) {
  std::vector<fs::path> images;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with("vmlinuz-")) images.push_back(entry.path());
  }
  std::sort(images.begin(), images.end());
  return images;
}

// The newest kernel of a folder that has all modules and can be read.
std::optional<Kernel> usable_kernel(const fs::path& folder, const ModuleNames& modules) {
  std::vector<fs::path> images = images_in(folder);
  for (auto image = images.rbegin(); image != images.rend(); ++image) {
    try {
      return kernel_of(*image, modules);
    } catch (const std::runtime_error&) {
      continue;  // of no use; there may be an older one
    }
  }
  return std::nullopt;
}

}  // namespace

fs::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "plugfest";
  const char* home = std::getenv("HOME");
  if (home != nullptr && access(home, W_OK) == 0) return fs::path(home) / ".cache" / "plugfest";
  return fmt::format("/var/tmp/plugfest-{}", getuid());
}

Kernel find_kernel(const std::optional<fs::path>& asked, const ModuleNames& modules,
                   const std::function<void(const std::string&)>& say) {
#ifndef __x86_64__
  throw std::runtime_error("a guest needs an x86-64 machine");
#endif
  if (asked) {
    if (!fs::is_directory(*asked)) return kernel_of(*asked, modules);
    if (auto kernel = usable_kernel(*asked / "boot", modules)) return *kernel;
    throw std::runtime_error(fmt::format(
        "{}: no kernel there that has the modules: expected boot/vmlinuz-VERSION and lib/modules/VERSION, as "
        "in an unpacked package",
        asked->string()));
  }
  if (auto kernel = usable_kernel("/boot", modules)) return *kernel;
  const fs::path kept = cache_folder() / "kernel";
  if (auto kernel = usable_kernel(kept / "boot", modules)) return *kernel;
  fetch_kernel_package(kept, modules, say);
  if (auto kernel = usable_kernel(kept / "boot", modules)) return *kernel;
  throw std::runtime_error(
      fmt::format("the kernel in {} lacks modules: give another with --kernel PATH", kept.string()));
}

}  // namespace plugfest::guest
