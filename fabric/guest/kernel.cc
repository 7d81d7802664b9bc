#include "fabric/guest/kernel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "fabric/system/file.h"
#include "fabric/system/process.h"

namespace plugfest::guest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdvice = "set a kernel with --kernel PATH, or install its package";

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(fmt::format("no kernel for the guest: {}: {}", what, kAdvice));
}

std::string error_line(const Finished& finished) {
  std::istringstream lines(finished.errors);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("E: ")) return line.substr(3);
    if (line.starts_with("dpkg-deb: ") || line.starts_with("tar: ")) return line;
  }
  return fmt::format("exit code {}", finished.exit_code);
}

Finished run_or_fail(const std::vector<std::string>& argv, const std::string& folder = {}) {
  Finished finished = run_program(argv, folder);
  if (finished.exit_code == 127) fail(fmt::format("{} is not installed", argv[0]));
  if (finished.exit_code != 0) fail(fmt::format("{} {}: {}", argv[0], argv[1], error_line(finished)));
  return finished;
}

std::string distribution() {
  std::ifstream lines("/etc/os-release");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("ID=")) return line.substr(3);
  return "unknown";
}

// The packages of the stock kernel: one on Debian; on Ubuntu two more contain modules.
std::vector<std::string> package_names() {
  const bool ubuntu = distribution() == "ubuntu";
  const std::string newest = ubuntu ? "linux-image-generic" : "linux-image-amd64";
  std::istringstream lines(run_or_fail({"apt-cache", "depends", newest}).output);
  for (std::string word; lines >> word;) {
    if (!word.starts_with("linux-image-") || word == newest) continue;
    const std::string version = word.substr(std::strlen("linux-image-"));
    if (!ubuntu) return {word};
    return {word, "linux-modules-" + version, "linux-modules-extra-" + version};
  }
  fail(fmt::format("apt-cache does not know {}: run sudo apt-get update", newest));
}

// Locks a file against concurrent downloads, as long as the descriptor is open.
Descriptor lock(const fs::path& file) {
  Descriptor descriptor(open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
  if (!descriptor || flock(descriptor.get(), LOCK_EX) != 0)
    fail(fmt::format("{}: cannot lock: {}", file.string(), std::strerror(errno)));
  return descriptor;
}

// Creates the cache folder. In a world-writable folder, a folder of another user is not trusted.
void make_own_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  struct stat status {};
  if (error || lstat(folder.c_str(), &status) != 0 || access(folder.c_str(), W_OK) != 0)
    fail(fmt::format("{}: not writable", folder.string()));
  if (status.st_uid != geteuid()) fail(fmt::format("{}: owned by another user", folder.string()));
}

// A folder that the destructor removes unless it has been renamed.
struct PartialFolder {
  fs::path path;

  explicit PartialFolder(fs::path where) : path(std::move(where)) {
    fs::remove_all(path);
    fs::create_directory(path);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// Removes all modules except the required ones. 90 % of a package are drivers for hardware that no guest has.
void remove_other_modules(const fs::path& version, const ModuleNames& modules) {
  const std::vector<fs::path> needed = modules_in_order(version, modules);
  std::vector<fs::path> others;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(version / "kernel"))
    if (entry.is_regular_file() && std::find(needed.begin(), needed.end(), entry.path()) == needed.end())
      others.push_back(entry.path());
  for (const fs::path& file : others) fs::remove(file);
}

// Downloads the distribution's newest stock kernel, without installing it, and unpacks boot/ and the files of `modules`
// in lib/modules/ to `folder`, which is created completely or not at all. Removes partial files of an earlier call that
// was killed.
void fetch_kernel_package(const fs::path& folder, const ModuleNames& modules,
                          const std::function<void(const std::string&)>& report_progress) {
  const std::vector<std::string> packages = package_names();
  make_own_folder(folder.parent_path());
  const Descriptor locked = lock(folder.parent_path() / "lock");
  const PartialFolder partial(folder.parent_path() / "partial");
  report_progress(fmt::format("downloading {} (once) to {}", packages.front(), folder.string()));
  std::vector<std::string> download = {"apt-get", "download", "-q"};
  download.insert(download.end(), packages.begin(), packages.end());
  run_or_fail(download, partial.path.string());
  const fs::path unpacked = partial.path / "unpacked";
  for (const fs::directory_entry& entry : fs::directory_iterator(partial.path))
    if (entry.path().extension() == ".deb") run_or_fail({"dpkg-deb", "-x", entry.path().string(), unpacked.string()});
  for (const fs::directory_entry& version : fs::directory_iterator(unpacked / "lib" / "modules"))
    remove_other_modules(version.path(), modules);
  fs::remove_all(folder);
  fs::rename(unpacked, folder);
}

// Reads the version from an image. In the x86 boot protocol, the field at 0x20e is the offset of the text minus 0x200.
std::string version_of(const fs::path& image) {
  std::ifstream stream(image, std::ios::binary);
  if (!stream) throw_file_error(image, "read");
  char magic[4] = {};
  std::uint16_t offset = 0;
  stream.seekg(0x202).read(magic, sizeof(magic));
  stream.seekg(0x20e).read(reinterpret_cast<char*>(&offset), sizeof(offset));
  if (!stream || std::memcmp(magic, "HdrS", 4) != 0)
    throw std::runtime_error(
        fmt::format("{}: not a Linux kernel image such as /boot/vmlinuz-6.1.0-18-amd64", image.string()));
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
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with("vmlinuz-")) images.push_back(entry.path());
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
