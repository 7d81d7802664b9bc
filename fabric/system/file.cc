#include "fabric/system/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace plugfest {
namespace {

// Appends to `text` what `read_some(buffer, size)` returns until it returns 0 or fails. Returns false, with errno set,
// if it failed.
template <typename ReadSome>
bool append_all(std::string& text, const ReadSome& read_some) {
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = read_some(buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::optional<std::string> try_read_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string content;
  const auto read_next = [&](char* buffer, std::size_t size) { return ::read(file.get(), buffer, size); };
  if (!file || !append_all(content, read_next)) return std::nullopt;
  return content;
}

std::string read_file(const std::string& path) {
  std::optional<std::string> content = try_read_file(path);
  if (!content) throw_file_error(path, "read");
  return *std::move(content);
}

std::string content_of(int fd) {
  std::string text;
  append_all(
      text, [&](char* buffer, std::size_t size) { return ::pread(fd, buffer, size, static_cast<off_t>(text.size())); });
  return text;
}

bool replace_file(const std::filesystem::path& file, std::string_view text) {
  std::string temporary = file.parent_path() / ".new-XXXXXX";
  const Descriptor descriptor(mkostemp(temporary.data(), O_CLOEXEC));
  if (!descriptor) return false;
  if (fchmod(descriptor.get(), 0644) == 0 && write_all(descriptor.get(), text) &&
      rename(temporary.c_str(), file.c_str()) == 0)
    return true;
  const int error = errno;
  unlink(temporary.c_str());
  errno = error;
  return false;
}

void raise_descriptor_limit() {
  constexpr rlim_t kMost = 1 << 20;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMost));
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace plugfest
