// A file that appears whole or not at all, and whose place is known to be writable before the work begins.
#pragma once

#include <string>
#include <string_view>

namespace plugfest::report {

/// Makes sure at once that a file can be written at `path`, so that a run cannot end with nowhere to put its results;
/// `write` puts it there. Whatever was at `path` stays until then. A process that is killed before leaves nothing: the
/// file has no name until it is whole, on file systems that can do that (O_TMPFILE).
class OutputFile {
 public:
  /// Errors: std::runtime_error "r.json: cannot write there: No such file or directory".
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Writes all of it, waits until it is on the disk, and puts it in its place. To be called once.
  /// Errors: std::runtime_error "r.json: cannot write: No space left on device".
  void write(std::string_view content);

 private:
  std::string path_;
  /// Its last component, and the same until the end; empty for what is no ordinary file (/dev/stdout), which is written
  /// to directly.
  std::string name_;
  std::string partial_;
  /// The folder. Kept open, since a file without a name can only be linked on the mount that it was opened on, and a
  /// process may enter a mount namespace in between.
  int folder_ = -1;
  bool partial_exists_ = false;
  int fd_ = -1;
};

}  // namespace plugfest::report
