#include "harness/report/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <utility>

namespace plugfest::report {
namespace {

namespace fs = std::filesystem;

// The number of the open descriptor that `path` names, as in /dev/fd/7; -1 if it names none. Opening such a path would
// fail on a pipe of another user, and renaming a file over it would replace the path instead of writing to the
// descriptor.
int descriptor_named(const std::string& path) {
  if (is_standard_output(path)) return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view prefix : {"/dev/fd/", "/proc/self/fd/"}) {
    int number = -1;
    const char* const end = path.data() + path.size();
    if (path.starts_with(prefix) && std::from_chars(path.data() + prefix.size(), end, number).ptr == end) return number;
  }
  return -1;
}

// Follows symbolic links at `path`. Their target need not exist.
fs::path follow_links(fs::path path) {
  constexpr int kMaxLinks = 40;  // as in the kernel
  std::error_code error;
  for (int links = 0; links < kMaxLinks && fs::is_symlink(path, error); ++links)
    path = path.parent_path() / fs::read_symlink(path, error);
  return path;
}

}  // namespace

bool is_standard_output(const std::string& path) { return path == "-" || path == "/dev/stdout"; }

OutputFile::OutputFile(std::string path, Mode mode) : path_(std::move(path)) {
  if (const int named = descriptor_named(path_); named >= 0) {
    descriptor_ = Descriptor(fcntl(named, F_DUPFD_CLOEXEC, 0));
    if (named == STDOUT_FILENO) path_ = "standard output";
    if (!descriptor_) throw_file_error(path_, "write");
    return;
  }
  const fs::path file = follow_links(path_);
  struct stat status {};
  if (stat(file.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) throw_file_error(path_, "write", EISDIR);
    if (access(file.c_str(), W_OK) != 0) throw_file_error(path_, "write");
    if (!S_ISREG(status.st_mode) || mode == Mode::kAppend) {
      descriptor_ = Descriptor(open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
      if (!descriptor_) throw_file_error(path_, "write");
      return;
    }
  }
  name_ = file.filename();
  partial_name_ = fmt::format("{}.partial-{}", name_, getpid());
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  folder_ = Descriptor(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) throw_file_error(path_, "write");
  descriptor_ = Descriptor(openat(folder_.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
  if (!descriptor_ && (errno == EOPNOTSUPP || errno == EISDIR)) {
    descriptor_ =
        Descriptor(openat(folder_.get(), partial_name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    partial_exists_ = static_cast<bool>(descriptor_);
  }
  if (!descriptor_) throw_file_error(path_, "write");
  constexpr mode_t kPermissions = 0777;
  if (S_ISREG(status.st_mode)) fchmod(descriptor_.get(), status.st_mode & kPermissions);
}

OutputFile::~OutputFile() {
  if (partial_exists_) unlinkat(folder_.get(), partial_name_.c_str(), 0);
}

void OutputFile::write(std::string_view content) {
  if (!write_all(descriptor_.get(), content)) throw_file_error(path_, "write");
  if (name_.empty()) return;
  if (fsync(descriptor_.get()) != 0) throw_file_error(path_, "write");
  if (!partial_exists_) {
    // The path in /proc is needed because linking a descriptor itself (AT_EMPTY_PATH) requires a privilege.
    const std::string descriptor = fmt::format("/proc/self/fd/{}", descriptor_.get());
    if (linkat(AT_FDCWD, descriptor.c_str(), folder_.get(), partial_name_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      throw_file_error(path_, "write");
    partial_exists_ = true;
  }
  if (renameat(folder_.get(), partial_name_.c_str(), folder_.get(), name_.c_str()) != 0)
    throw_file_error(path_, "write");
  partial_exists_ = false;
}

std::unique_ptr<OutputFile> open_output(const std::string& path, OutputFile::Mode mode) {
  return path.empty() ? nullptr : std::make_unique<OutputFile>(path, mode);
}

}  // namespace plugfest::report
