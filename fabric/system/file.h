// File descriptors and files.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace plugfest {

/// Owns a file descriptor and closes it on destruction. Default-constructed: no descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void close() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

/// Whether `error`, the errno value of a failed accept(), means that descriptors or memory are used up. The connection
/// then stays in the kernel's queue and the listener stays readable, so a loop has to pause before it accepts again.
inline bool must_pause_accepting(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/// Throws std::system_error "cannot ACTION: REASON". `action`: a verb phrase. `error`: the errno value of the reason.
[[noreturn]] inline void throw_errno(const std::string& action, int error = errno) {
  throw std::system_error(error, std::generic_category(), "cannot " + action);
}

/// Throws std::runtime_error "PATH: cannot ACTION: REASON". `action`: a verb, as in "write". `error`: the errno value
/// of the reason.
[[noreturn]] inline void throw_file_error(const std::string& path, const std::string& action, int error = errno) {
  throw std::runtime_error(path + ": cannot " + action + ": " + std::generic_category().message(error));
}

/// Returns the whole content of a file or pipe; nothing, with errno set, if it cannot be read.
std::optional<std::string> try_read_file(const std::string& path);

/// Returns the whole content of a file or pipe that a user named.
/// Errors: std::runtime_error "PATH: cannot read: REASON".
std::string read_file(const std::string& path);

/// Writes all bytes to a blocking descriptor. Returns false, with errno set, if it cannot.
inline bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Returns the content of an open file, without changing its offset. If reading fails, returns the bytes before that.
std::string content_of(int fd);

/// Replaces `file` by one with the content `text` (mode 0644): readers see the old or the new content. Returns false,
/// with errno set, if it cannot be written. Any thread and process may replace the same file at the same time.
bool replace_file(const std::filesystem::path& file, std::string_view text);

/// Raises this process's limit of open descriptors as far as the system permits, at most to 1,048,576. A limit that
/// cannot be changed stays.
void raise_descriptor_limit();

/// Detects changes of a file: remembers the inode, size and modification time of a file.
class FileVersion {
 public:
  /// Returns true if the file has changed since the previous call. First call: true if the file exists.
  bool changed(const std::filesystem::path& file) {
    struct stat now = {};
    if (stat(file.c_str(), &now) != 0) now = {};
    const bool same = now.st_dev == seen_.st_dev && now.st_ino == seen_.st_ino && now.st_size == seen_.st_size &&
                      now.st_mtim.tv_sec == seen_.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec;
    seen_ = now;
    return !same;
  }
  /// Whether the file existed at the last call of changed().
  bool exists() const { return seen_.st_ino != 0; }

 private:
  struct stat seen_ = {};
};

}  // namespace plugfest
