// Where this user's live fabrics are noted: a folder of his own, with a locked record and a socket for each.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/system/descriptor.h"

namespace plugfest::live {

/// What the folder says about a fabric.
struct Record {
  std::string name;
  std::string specification;  ///< as topology::named() takes it; a file's is a copy that was made when it went up
  std::string topology;       ///< the specification as the user gave it
  bool out_of_band = false;
  pid_t keeper = -1;
  std::time_t since = 0;
};

/// The right to a name: its record's file, locked. The lock lasts until the last process that has the descriptor ends,
/// however it ends, so a record without a lock is one whose keeper was killed.
struct Claim {
  Descriptor lock;
  std::optional<Record> stale;  ///< what a killed keeper had left under the name, now removed
};

/// $XDG_RUNTIME_DIR/plugfest where that variable names a folder of the user's, else /tmp/plugfest-UID.
class StateFolder {
 public:
  /// Makes it if need be. Errors: std::runtime_error if it cannot be made, or is not this user's alone.
  StateFolder();
  /// The folder if there is one. Errors: std::runtime_error if it is not this user's alone.
  static std::optional<StateFolder> existing();

  const std::string& path() const { return path_; }

  /// Takes a name. Errors: std::runtime_error if a fabric of that name is up, or the name is none for a file.
  Claim claim(const std::string& name) const;
  /// Writes the record of a claimed name. `topology_text`: of a topology file, else empty. Errors: std::runtime_error.
  void write(const Claim& claim, Record& record, const std::string& topology_text) const;
  /// Removes all files of a claimed name, and the folder with the last.
  void remove(const std::string& name) const noexcept;

  /// The fabric of that name if its keeper lives. What a killed keeper has left is removed, and its record put into
  /// `stale`. Errors: std::runtime_error if the name is none for a file.
  std::optional<Record> find(const std::string& name, std::optional<Record>* stale = nullptr) const;
  /// Names of all records, of dead fabrics too, sorted.
  std::vector<std::string> names() const;

  /// Address of a fabric's socket, short enough for the kernel however long the folder's path is. Valid in this process
  /// as long as the object.
  std::string socket_path(const std::string& name) const;

 private:
  explicit StateFolder(std::string path);

  std::string path_;
  Descriptor folder_;
};

/// Errors: std::runtime_error unless `name` is one to 64 letters, digits and . _ - : , = and begins with a letter or
/// digit.
void check_name(std::string_view name);

}  // namespace plugfest::live
