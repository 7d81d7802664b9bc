// A file that a command writes at its end: complete or not at all.
#pragma once

#include <string>
#include <string_view>

#include "fabric/system/descriptor.h"

namespace plugfest::report {

/// Checks on construction that a file can be written at `path`, so that no run ends without a place for its results;
/// `write` writes it. A regular file is replaced atomically and keeps its content until then. If the process is killed
/// before, nothing is left on file systems that support O_TMPFILE. A symbolic link is followed: its target is replaced.
/// What is not a regular file (a pipe, a device) is written to directly, and so are the open descriptors named by `-`,
/// /dev/stdout, /dev/stderr and /dev/fd/N.
class OutputFile {
 public:
  /// Errors: std::runtime_error "r.json: cannot write there: No such file or directory".
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Writes `content`, waits until it is on the disk, and moves it to its path. May be called once.
  /// Errors: std::runtime_error "r.json: cannot write: No space left on device".
  void write(std::string_view content);

 private:
  std::string path_;     ///< as the user wrote it, for messages
  std::string name_;     ///< last component of the file to replace; empty if descriptor_ is written to directly
  std::string partial_;  ///< name of the file until it is complete
  /// The folder of the file. It stays open, because an O_TMPFILE file can only be linked on the mount that it was
  /// opened on, and the process may enter another mount namespace in between.
  Descriptor folder_;
  Descriptor descriptor_;
  bool partial_exists_ = false;
};

}  // namespace plugfest::report
