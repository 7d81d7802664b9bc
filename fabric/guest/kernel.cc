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

// Reads the version from an image. In the x86 boot protocol, the field at 0x20e is the offset of the text minus 0x200.
std::string version_of(const fs::path& image) {
  std::ifstream stream(image, std::ios::binary);
  if (!stream) throw std::runtime_error(fmt::format("{}: cannot read: {}", image.string(), std::strerror(errno)));
  char magic[4] = {};
  std::uint16_t offset = 0;
  stream.seekg(0x202).read(magic, sizeof(magic));
  stream.seekg(0x20e).read(reinterpret_cast<char*>(&offset), sizeof(offset));
  if (!stream || std::memcmp(magic, "HdrS", 4) != 0) {
    throw std::runtime_error(
        fmt::format("{}: not a Linux kernel image such as /boot/vmlinuz-6.1.0-18-amd64", image.string()));
  }
  std::string version;
  stream.seekg(offset + 0x200) >> version;
  return version;
}

Kernel kernel_of(const fs::path& image, const ModuleNames& modules) {
  const std::string version = version_of(image);
  const fs::path unpacked = fs::absolute(image).parent_path().parent_path() / "lib" / "modules" / version;
  const fs::path folder = fs::exists(unpacked) ? unpacked : fs::path("/lib/modules") / version;
  return {image, version, modules_in_order(folder, modules)};
}

// The images in a folder, sorted by name, so usually the newest is last.
std::vector<fs::path> images_in(const fs::path& folder) {
  std::vector<fs::path> images;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with("vmlinuz-")) images.push_back(entry.path());
  }
  std::sort(images.begin(), images.end());
  return images;
}

// The newest readable kernel in a folder that has all modules.
std::optional<Kernel> usable_kernel(const fs::path& folder, const ModuleNames& modules) {
  std::vector<fs::path> images = images_in(folder);
  for (auto image = images.rbegin(); image != images.rend(); ++image) {
    try {
      return kernel_of(*image, modules);
    } catch (const std::runtime_error&) {
      continue;  // an older kernel may be usable
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

Kernel find_kernel(const std::optional<fs::path>& path, const ModuleNames& modules,
                   const std::function<void(const std::string&)>& report_progress) {
#ifndef __x86_64__
  throw std::runtime_error("guests are supported on x86-64 only");
#endif
  if (path) {
    if (!fs::is_directory(*path)) return kernel_of(*path, modules);
    if (auto kernel = usable_kernel(*path / "boot", modules)) return *kernel;
    throw std::runtime_error(fmt::format(
        "{}: no kernel with the required modules: expected boot/vmlinuz-VERSION and lib/modules/VERSION, as "
        "in an unpacked package",
        path->string()));
  }
  if (auto kernel = usable_kernel("/boot", modules)) return *kernel;
  const fs::path cached = cache_folder() / "kernel";
  if (auto kernel = usable_kernel(cached / "boot", modules)) return *kernel;
  fetch_kernel_package(cached, modules, report_progress);
  if (auto kernel = usable_kernel(cached / "boot", modules)) return *kernel;
  throw std::runtime_error(
      fmt::format("the kernel in {} lacks modules: use another with --kernel PATH", cached.string()));
}

}  // namespace plugfest::guest
