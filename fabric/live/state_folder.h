// The user's folder of background fabrics: a locked record and a socket for each.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/system/file.h"

namespace plugfest::live {

/// Record::problem of a fabric whose keeper has not written the record yet.
inline constexpr const char* kBeingBuilt = "it is being built";

struct Record {
  std::string name;
  std::string specification;  ///< the argument of topology::named(); for a topology file, the path of the keeper's copy
  std::string topology;       ///< the specification that the user typed
  bool out_of_band = false;
  bool reduction = false;  ///< whether switches reduce
  pid_t keeper = -1;       ///< process id
  std::time_t since = 0;   ///< start time
  /// Why the fabric can only be taken down: kBeingBuilt, "its record is damaged". Empty: it can be used.
  std::string problem = {};
};

/// The exclusive right to a name: the locked file of its record. The lock lasts until all processes with the descriptor
/// have exited. A record without a lock therefore belongs to a killed keeper.
struct Claim {
  Descriptor lock;
  std::optional<Record> stale;  ///< the record of a killed keeper of the same name, now removed
};

/// $XDG_RUNTIME_DIR/plugfest if that variable names a folder that the user owns, else /tmp/plugfest-UID.
class StateFolder {
 public:
  /// Creates the folder if necessary. Errors: std::runtime_error if it cannot be created or other users have access.
  StateFolder();
  /// Opens the folder if it exists. Errors: std::runtime_error if other users have access.
  static std::optional<StateFolder> existing();

  const std::string& path() const { return path_; }

  /// Claims a name. Errors: as check_name(), and std::runtime_error if a fabric with this name is up.
  Claim claim(const std::string& name) const;
  /// Writes the record of a claimed name. `topology_text`: the content of a topology file, else empty.
  /// Errors: std::runtime_error.
  void write(const Claim& claim, Record& record, const std::string& topology_text) const;
  /// Removes all files of a claimed name, and the folder if it is empty then.
  void remove(const std::string& name) const noexcept;
  /// Removes the folder if it has no files: a process that is killed before it claims a name leaves such a folder.
  void remove_if_empty() const noexcept;

  /// The fabric with a name, if its keeper is running. Removes the files of a killed keeper and stores its record in
  /// `stale`. Errors: as check_name().
  std::optional<Record> find(const std::string& name, std::optional<Record>* stale = nullptr) const;
  /// The valid names of all records, including records of killed keepers, sorted.
  std::vector<std::string> names() const;

  /// Takes the turn to run rules on a fabric: a locked file. If another process has the turn, calls `on_wait` with the
  /// process id of the holder, or 0 if it is unknown, and waits. The turn ends when all processes that inherited the
  /// returned descriptor have exited. Signals interrupt the wait as usual.
  /// Errors: std::runtime_error, for example if the fabric was removed during the wait.
  Descriptor take_turn(const Record& record, const std::function<void(pid_t holder)>& on_wait) const;

  /// The address of a fabric's socket, within the kernel's length limit for any folder path. Valid in this process as
  /// long as the object.
  std::string socket_path(const std::string& name) const;

 private:
  explicit StateFolder(std::string path);

  std::string path_;
  Descriptor folder_;
};

/// Checks that a name consists of 1 to 64 letters, digits and . _ - : , = and begins with a letter or digit.
/// Errors: std::runtime_error.
void check_name(std::string_view name);

}  // namespace plugfest::live
