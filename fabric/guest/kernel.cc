#include "fabric/guest/kernel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "fabric/system/process.h"

namespace plugfest::guest {

namespace {

[[noreturn]] void throw_failed(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_failed("pipe");
    read_end = ends[0];
    write_end = ends[1];
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(read_end);
    close_write_end();
  }
  void close_write_end() {
    if (write_end >= 0) close(write_end);
    write_end = -1;
  }
};

void drain(const Pipe& output, std::string& output_text, const Pipe& errors, std::string& errors_text) {
  pollfd events[] = {{output.read_end, POLLIN, 0}, {errors.read_end, POLLIN, 0}};
  std::string* texts[] = {&output_text, &errors_text};
  char buffer[65536];
  while (events[0].fd >= 0 || events[1].fd >= 0) {
    if (poll(events, 2, -1) < 0 && errno != EINTR) throw_failed("poll");
    for (int i = 0; i < 2; ++i) {
      if (events[i].fd < 0 || events[i].revents == 0) continue;
      const ssize_t got = read(events[i].fd, buffer, sizeof(buffer));
      if (got < 0 && errno != EINTR) throw_failed("read");
      if (got > 0) texts[i]->append(buffer, static_cast<std::size_t>(got));
      if (got == 0) events[i].fd = -1;
    }
  }
}

}  // namespace

Finished run_program(std::vector<std::string> argv, const std::string& folder) {
  Pipe output;
  Pipe errors;
  std::vector<char*> pointers;
  for (std::string& word : argv) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw_failed("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(output.write_end, 1);
    dup2(errors.write_end, 2);
    if (folder.empty() || chdir(folder.c_str()) == 0) execvp(pointers[0], pointers.data());
    _exit(127);
  }
  output.close_write_end();
  errors.close_write_end();
  Finished finished;
  drain(output, finished.output, errors, finished.errors);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  finished.exit_code = exit_code_of(status);
  return finished;
}

void Archive::add(std::string_view path, unsigned mode, std::string_view content) {
  const auto pad = [this] { bytes_.resize((bytes_.size() + 3) / 4 * 4); };
  // Magic number, then fields of 8 hexadecimal digits: inode, mode, user, group, links, time, size, four device
  // numbers, name length, checksum.
  bytes_ += fmt::format("070701{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:032x}{:08x}{:08x}", ++entries_, mode, 0, 0,
                        1, 0, content.size(), 0, path.size() + 1, 0);
  bytes_.append(path).push_back('\0');
  pad();
  bytes_ += content;
  pad();
}

std::string Archive::finish() {
  add("TRAILER!!!", 0, {});
  return std::exchange(bytes_, {});
}

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

namespace {

namespace fs = std::filesystem;

// "sch-netem.ko.zst" is the module sch_netem.
std::string module_name(const fs::path& file) {
  std::string name = file.filename().string();
  const std::size_t end = name.find(".ko");
  if (end == std::string::npos) return {};
  name.resize(end);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::map<std::string, fs::path> files_by_name(const fs::path& folder) {
  std::map<std::string, fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder / "kernel")) {
    if (const std::string name = module_name(entry.path()); !name.empty()) files.emplace(name, entry.path());
  }
  return files;
}

std::set<std::string> built_in(const fs::path& folder) {
  std::set<std::string> names;
  std::ifstream lines(folder / "modules.builtin");
  for (std::string line; std::getline(lines, line);) names.insert(module_name(line));
  return names;
}

// Reads the dependencies from the section .modinfo, which has one entry such as "depends=udp_tunnel,ib_core".
std::vector<std::string> dependencies(const fs::path& file) {
  const std::string content = module_content(file);
  constexpr std::string_view kKey("\0depends=", 9);
  const std::size_t at = content.find(kKey);
  std::vector<std::string> names;
  if (at == std::string::npos) return names;
  std::istringstream list(std::string(content.c_str() + at + kKey.size()));
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

class LoadOrder {
 public:
  explicit LoadOrder(const fs::path& folder) : files_(files_by_name(folder)), built_in_(built_in(folder)) {}

  // Returns false if the module is neither in a file nor built in.
  bool add(std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    const auto file = files_.find(name);
    if (file == files_.end()) return built_in_.contains(name);
    if (!seen_.insert(name).second) return true;
    for (const std::string& needed : dependencies(file->second)) add(needed);
    order_.push_back(file->second);
    return true;
  }

  std::vector<fs::path> take() { return std::move(order_); }

 private:
  std::map<std::string, fs::path> files_;
  std::set<std::string> built_in_;
  std::set<std::string> seen_;
  std::vector<fs::path> order_;
};

}  // namespace

std::string module_content(const fs::path& file) {
  const std::string extension = file.extension().string();
  if (extension == ".xz" || extension == ".zst") {
    const std::string program = extension == ".xz" ? "xz" : "zstd";
    Finished unpacked = run_program({program, "-dcq", file.string()});
    if (unpacked.exit_code != 0)
      throw std::runtime_error(fmt::format("{}: cannot decompress with {}", file.string(), program));
    return std::move(unpacked.output);
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::runtime_error(fmt::format("{}: cannot read", file.string()));
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::vector<fs::path> modules_in_order(const fs::path& folder, const ModuleNames& names) {
  if (!fs::is_directory(folder / "kernel"))
    throw std::runtime_error(fmt::format("{}: contains no modules", folder.string()));
  LoadOrder order(folder);
  for (const std::string& name : names.required) {
    if (!order.add(name)) throw std::runtime_error(fmt::format("{}: no module {}", folder.string(), name));
  }
  for (const std::string& name : names.optional) order.add(name);
  return order.take();
}

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
