// A file that appears whole or not at all, and whose place is known to be writable before the work begins.
#pragma once

#include <string>
#include <string_view>

namespace plugfest::report {

/// Opens "PATH.partial-…" beside `path` at once, so that a run cannot end with nowhere to put its results; `write`
/// renames it into place. Whatever was at `path` stays until then. Unwritten, it leaves nothing behind.
class OutputFile {
 public:
  /// Errors: std::runtime_error "r.json: cannot write there: No such file or directory".
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Writes all of it, waits until it is on the disk, and puts it in its place. May be called again with more.
  /// Errors: std::runtime_error "r.json: cannot write: No space left on device".
  void write(std::string_view content);

 private:
  std::string path_;
  /// Empty for what is no ordinary file (/dev/stdout), which is written to directly.
  std::string partial_;
};

}  // namespace plugfest::report
