// Which address of an interface has which GID index.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "fabric/roce/wire/address.h"

namespace plugfest::roce {

inline constexpr std::size_t kGidPlaces = 16;

/// By GID index. An empty place holds Address().
using GidPlaces = std::array<Address, kGidPlaces>;

/// Who has a place keeps it, who is gone leaves it empty; new addresses take the first places that are empty, in their
/// order. Those that find none have no GID.
GidPlaces next_places(const GidPlaces& before, std::span<const Address> addresses);

/// A device's table. All processes of a host have the same one where the device has a folder in the sysfs view: its
/// files `ports/1/gids/…` and `gid_attrs/…` are the table, and each process that follows a change writes it down there.
/// Thread safety: any thread.
class GidTable {
 public:
  /// `device_folder`: need not exist; looked for in the mount namespace of the caller.
  GidTable(std::filesystem::path device_folder, std::string interface_name);

  /// The table once it has followed these. `look`: also at the files, although the addresses are those of the call
  /// before. Where the files cannot be written, or another process that was stopped holds them, the table is this
  /// process's own from there on.
  GidPlaces follow(std::span<const Address> addresses, bool look);

  /// As it was after the last call of follow().
  GidPlaces places() const;

 private:
  const std::filesystem::path folder_;
  const std::string interface_;
  mutable std::mutex mutex_;
  GidPlaces places_ = {};           ///< guarded by mutex_, as what follows
  std::vector<Address> addresses_;  ///< that it has followed
};

/// Makes the files of an empty table; those that are there stay as they are. Errors: std::runtime_error that names the
/// file.
void make_gid_files(const std::filesystem::path& device_folder);

}  // namespace plugfest::roce
