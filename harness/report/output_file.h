// Output files of commands, replaced atomically.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "fabric/system/file.h"

namespace plugfest::report {

/// Whether an output path names standard output: `-` or /dev/stdout. A command that writes data there prints no text.
bool is_standard_output(const std::string& path);

/// An output file. The constructor checks that `path` can be written, so that a long run does not fail at its end.
/// write() replaces a regular file atomically and keeps its permissions; until then the old content stays. A killed
/// process leaves no partial file on file systems with O_TMPFILE. If `path` is a symbolic link, its target is replaced.
/// Pipes, devices and the open descriptors `-`, /dev/stdout, /dev/stderr and /dev/fd/N are written directly.
class OutputFile {
 public:
  /// kAppend: write() appends to a regular file that exists.
  enum class Mode { kReplace, kAppend };

  /// Errors: std::runtime_error "r.json: cannot write: No such file or directory".
  explicit OutputFile(std::string path, Mode mode = Mode::kReplace);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Writes `content`, waits until it is on the disk, and moves it to its path. May be called once.
  /// Errors: std::runtime_error "r.json: cannot write: No space left on device".
  void write(std::string_view content);

 private:
  std::string path_;          ///< as the user wrote it, for messages
  std::string name_;          ///< last component of the path; empty if the file is written directly
  std::string partial_name_;  ///< name of the file until it is complete
  /// The folder of the file. It stays open, because an O_TMPFILE file can only be linked on the mount on which it was
  /// opened, and the process may enter another mount namespace in between.
  Descriptor folder_;
  Descriptor descriptor_;
  bool partial_exists_ = false;
};

/// The output file that the user named; null for "". Errors: as OutputFile.
std::unique_ptr<OutputFile> open_output(const std::string& path, OutputFile::Mode mode = OutputFile::Mode::kReplace);

}  // namespace plugfest::report
