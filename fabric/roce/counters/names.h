// Counters as files of the sysfs view and as a table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "fabric/roce/counters/counters.h"

namespace plugfest::roce {

/// One file under ports/1 of a device.
struct CounterFile {
  const char* folder;  ///< "counters" or "hw_counters"
  const char* name;    ///< the name that mlx5 or rxe uses, if they have this counter
  std::uint64_t (*value)(const Counters&);
};
std::span<const CounterFile> counter_files();

/// Updates the files whose values differ between `before` and `now`. Replaces each file atomically. Returns false if a
/// file cannot be written.
bool write_counter_files(const std::filesystem::path& device_folder, const Counters& now, const Counters& before);

/// Creates the counter page and all counter files, with the current values. Errors: std::runtime_error that names the
/// file.
void make_counter_files(const std::filesystem::path& device_folder);

/// The counters of one device, summed over all processes.
struct DeviceCounters {
  std::string device;  ///< "roce_eth0", or with the host: "a.roce_eth0"
  Counters counters;
};

/// Reads the counters of all devices in a sysfs view, sorted by name. The default path is valid in the mount namespace
/// of a host; from outside use /proc/<pid>/root/sys/class/infiniband of one of its processes.
std::vector<DeviceCounters> read_counters(const std::filesystem::path& class_infiniband = "/sys/class/infiniband");

/// Formats a text table of at most 80 columns: a heading, then one line per device. Except for the first ones, it has
/// only the counters that are not zero on all devices; if these are too many, the table is repeated for the rest.
std::string counter_table(std::span<const DeviceCounters> devices);

}  // namespace plugfest::roce
