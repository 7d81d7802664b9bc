// The memory mappings of processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace plugfest {

/// One line of /proc/PID/maps.
struct MemoryMapping {
  std::uint64_t begin = 0, end = 0;
  bool readable = false, writable = false, executable = false;
  std::string_view file;  ///< its path; empty: no file. Valid until `visit` returns.
};

/// Calls `visit` for each mapping in `maps`, the path of such a file, in the order of addresses, until it returns
/// false. Returns false if the file cannot be read. Thread safety: any thread.
bool visit_mappings(const std::string& maps, const std::function<bool(const MemoryMapping&)>& visit);

/// Calls `visit` for the mappings of this process that end after address `first`, like visit_mappings, but may leave
/// out their files. Since Linux 6.11 the time does not depend on how many mappings the process has.
bool visit_own_mappings(std::uint64_t first, const std::function<bool(const MemoryMapping&)>& visit);

}  // namespace plugfest
