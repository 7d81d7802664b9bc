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
  if (stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    if (S_ISDIR(status.st_mode)) fail(path_, "cannot write there", EISDIR);
    if (access(path_.c_str(), W_OK) != 0) fail(path_, "cannot write there", errno);
    return;
  }
  if (access(path_.c_str(), F_OK) == 0 && access(path_.c_str(), W_OK) != 0) fail(path_, "cannot write there", errno);
  partial_ = fmt::format("{}.partial-{}", path_, getpid());
  const int fd = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    partial_.clear();
    fail(path_, "cannot write there", errno);
  }
  close(fd);
}

OutputFile::~OutputFile() {
  if (!partial_.empty()) unlink(partial_.c_str());
}

void OutputFile::write(std::string_view content) {
  const std::string& target = partial_.empty() ? path_ : partial_;
  const int flags = partial_.empty() ? O_WRONLY : O_WRONLY | O_CREAT | O_TRUNC;
  const int fd = open(target.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) fail(path_, "cannot write", errno);
  int error = write_all(fd, content);
  if (error == 0 && !partial_.empty() && fsync(fd) != 0) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error != 0) fail(path_, "cannot write", error);
  if (!partial_.empty() && std::rename(partial_.c_str(), path_.c_str()) != 0) fail(path_, "cannot write", errno);
}

}  // namespace plugfest::report
