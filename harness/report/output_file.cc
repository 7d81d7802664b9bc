#include "harness/report/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace plugfest::report {
namespace {

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw std::runtime_error(fmt::format("{}: {}: {}", path, what, std::strerror(error)));
}

/// 0, or the errno of what failed.
int write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  struct stat status {};
  if (stat(path_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) fail(path_, "cannot write there", EISDIR);
    if (access(path_.c_str(), W_OK) != 0) fail(path_, "cannot write there", errno);
    if (!S_ISREG(status.st_mode)) {
      fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
      if (fd_ < 0) fail(path_, "cannot write there", errno);
      return;
    }
  }
  const std::size_t slash = path_.rfind('/');
  name_ = slash == std::string::npos ? path_ : path_.substr(slash + 1);
  partial_ = fmt::format("{}.partial-{}", name_, getpid());
  folder_ =
      open(slash == std::string::npos ? "." : path_.substr(0, slash + 1).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) fail(path_, "cannot write there", errno);
  fd_ = openat(folder_, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    fd_ = openat(folder_, partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    partial_exists_ = fd_ >= 0;
  }
  if (fd_ < 0) {
    const int error = errno;
    close(folder_);
    fail(path_, "cannot write there", error);
  }
}

OutputFile::~OutputFile() {
  close(fd_);
  if (partial_exists_) unlinkat(folder_, partial_.c_str(), 0);
  if (folder_ >= 0) close(folder_);
}

void OutputFile::write(std::string_view content) {
  if (const int error = write_all(fd_, content); error != 0) fail(path_, "cannot write", error);
  if (name_.empty()) return;
  if (fsync(fd_) != 0) fail(path_, "cannot write", errno);
  if (!partial_exists_) {
    // Through /proc, as linking a descriptor itself (AT_EMPTY_PATH) takes a privilege.
    const std::string descriptor = fmt::format("/proc/self/fd/{}", fd_);
    if (linkat(AT_FDCWD, descriptor.c_str(), folder_, partial_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      fail(path_, "cannot write", errno);
    }
    partial_exists_ = true;
  }
  if (renameat(folder_, partial_.c_str(), folder_, name_.c_str()) != 0) fail(path_, "cannot write", errno);
  partial_exists_ = false;
}

}  // namespace plugfest::report
