// Reads a file that a user named.
#pragma once

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>

namespace plugfest {

/// Returns the whole content. Errors: std::runtime_error "PATH: cannot read: REASON".
inline std::string read_file(const std::string& path) {
  std::error_code ignored;
  int error = std::filesystem::is_directory(path, ignored) ? EISDIR : 0;
  std::string content;
  if (error == 0) {
    errno = 0;
    std::ifstream stream(path, std::ios::binary);
    if (stream) content.assign(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    if (!stream) error = errno != 0 ? errno : EIO;
  }
  if (error != 0) throw std::runtime_error(path + ": cannot read: " + std::generic_category().message(error));
  return content;
}

}  // namespace plugfest
