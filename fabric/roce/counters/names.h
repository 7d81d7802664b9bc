// The counters as people and exporters know them: files of the sysfs view, and a table.
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
  const char* name;    ///< as mlx5 and rxe name it, where they have it
  std::uint64_t (*value)(const Counters&);
};
std::span<const CounterFile> counter_files();

/// Writes the files of a device that say something else by `before`, each replaced as a whole: whoever reads one sees
/// the number before or this. False if one could not be written.
bool write_counter_files(const std::filesystem::path& device_folder, const Counters& now, const Counters& before);

/// Makes all of them, with what the device has counted so far, and the page that they come from. Errors:
/// std::runtime_error that names the file.
void make_counter_files(const std::filesystem::path& device_folder);

/// What one device has counted.
struct DeviceCounters {
  std::string device;  ///< "roce_eth0", or with its host: "a.roce_eth0"
  Counters counters;
};

/// Every device of the host whose sysfs view this is, by name, over all its processes. To be called where the path
/// leads to the view: in the host's mount namespace, or by /proc/<pid>/root/sys/class/infiniband of one of its
/// processes.
std::vector<DeviceCounters> read_counters(const std::filesystem::path& class_infiniband = "/sys/class/infiniband");

/// One line per device under a line of headings, for people.
std::string counter_table(std::span<const DeviceCounters> devices);

}  // namespace plugfest::roce
