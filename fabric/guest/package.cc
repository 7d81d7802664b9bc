#include "fabric/guest/package.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "fabric/guest/modules.h"
#include "fabric/guest/program.h"

namespace plugfest::guest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdvice = "set a kernel with --kernel PATH, or install its package";

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(fmt::format("no kernel for the guest: {}: {}", what, kAdvice));
}

// The line of a program's output with the error.
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
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("ID=")) return line.substr(3);
  }
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

// A lock against concurrent downloads. The kernel releases it when this process exits.
class Lock {
 public:
  explicit Lock(const fs::path& file) : fd_(open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
    if (fd_ < 0 || flock(fd_, LOCK_EX) != 0) fail(fmt::format("{}: {}", file.string(), std::strerror(errno)));
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { close(fd_); }

 private:
  int fd_;
};

// Creates the cache folder. In a world-writable folder, a folder of another user is not trusted.
void make_own_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  struct stat status {};
  if (error || lstat(folder.c_str(), &status) != 0 || access(folder.c_str(), W_OK) != 0) {
    fail(fmt::format("{}: not writable", folder.string()));
  }
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
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(version / "kernel")) {
    if (entry.is_regular_file() && std::find(needed.begin(), needed.end(), entry.path()) == needed.end()) {
      others.push_back(entry.path());
    }
  }
  for (const fs::path& file : others) fs::remove(file);
}

}  // namespace

void fetch_kernel_package(const fs::path& folder, const ModuleNames& modules,
                          const std::function<void(const std::string&)>& report_progress) {
  const std::vector<std::string> packages = package_names();
  make_own_folder(folder.parent_path());
  const Lock lock(folder.parent_path() / "lock");
  const PartialFolder partial(folder.parent_path() / "partial");
  report_progress(fmt::format("downloading {} (once) to {}", packages.front(), folder.string()));
  std::vector<std::string> download = {"apt-get", "download", "-q"};
  download.insert(download.end(), packages.begin(), packages.end());
  run_or_fail(download, partial.path.string());
  const fs::path unpacked = partial.path / "unpacked";
  for (const fs::directory_entry& entry : fs::directory_iterator(partial.path)) {
    if (entry.path().extension() == ".deb") {
      run_or_fail({"dpkg-deb", "-x", entry.path().string(), unpacked.string()});
    }
  }
  for (const fs::directory_entry& version : fs::directory_iterator(unpacked / "lib" / "modules")) {
    remove_other_modules(version.path(), modules);
  }
  fs::remove_all(folder);
  fs::rename(unpacked, folder);
}

}  // namespace plugfest::guest
