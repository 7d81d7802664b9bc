// GID tables: the addresses of an interface by GID index.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "fabric/roce/wire/address.h"
#include "fabric/system/process_handlers.h"

namespace plugfest::roce::verbs {

inline constexpr std::size_t kGidTableSize = 16;

/// Addresses by GID index; Address() for an empty entry.
using GidEntries = std::array<Address, kGidTableSize>;

/// The index that repeats the first IPv4 address of the table. On NICs with RoCE v1 and v2, Linux usually gives this
/// index to the RoCE v2 entry of that address: it follows two entries of the link-local address and the entry for
/// RoCE v1. Some plugins have this index as default, and many jobs set NCCL_IB_GID_INDEX=3.
inline constexpr std::size_t kIpv4Index = 3;

/// Updates a table: addresses that stay keep their index, removed addresses leave empty entries, new addresses fill the
/// first empty entries but kIpv4Index, in order. Without an empty entry an address gets no GID.
GidEntries updated_entries(const GidEntries& before, std::span<const Address> addresses);

/// The GID table of a device. If the device has a folder in the sysfs view, all processes of the host share the table:
/// it is stored in the files `ports/1/gids/…` and `gid_attrs/…`, and each process that sees a change updates them.
/// Thread safety: any thread.
class GidTable {
 public:
  /// `device_folder`: need not exist; a path in the mount namespace of the caller.
  GidTable(std::filesystem::path device_folder, std::string interface_name);

  /// Updates the table to `addresses` and returns it. `force`: reads the files again even if the addresses have not
  /// changed since the previous call. If the files cannot be written, the table is private to this process; while a
  /// stopped process holds their lock, too: each later call tries again. `order`: increases with each snapshot of the
  /// addresses. A call with an older snapshot than that of an earlier call changes nothing.
  GidEntries update(std::span<const Address> addresses, bool force, std::uint64_t order = 0);

  /// The table after the last update().
  GidEntries entries() const;
  /// Whether the last update() did not get the lock of the files, so that another one is due.
  bool waits_for_lock() const;

 private:
  const std::filesystem::path folder_;
  const std::string interface_;
  mutable ForkSafeMutex mutex_;
  GidEntries entries_ = {};         ///< guarded by mutex_, as addresses_
  std::vector<Address> addresses_;  ///< addresses of the last update()
  std::uint64_t order_ = 0;         ///< of these addresses
  bool waits_for_lock_ = false;
};

/// Creates the files of an empty table unless they exist. Errors: std::runtime_error that names the file.
void make_gid_files(const std::filesystem::path& device_folder);

}  // namespace plugfest::roce::verbs
