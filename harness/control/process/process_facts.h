// Facts that a rank reports about its process: the loaded library, facts from the kernel, log lines.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "harness/plugin/layout.h"

namespace plugfest::control {

/// The library after loading and before init.
struct LibraryFacts {
  /// The plugin as the user named it, and the path of its file.
  std::string asked;
  std::string path;
  /// The interface, its version in use, and all its versions in the library, newest first.
  plugin::InterfaceKind interface = plugin::InterfaceKind::kNet;
  int api = 0;
  std::vector<int> apis;
  /// True for nccl:IB and nccl:Socket, which are not libraries.
  bool built_in = false;
  /// The table's first member, read before init. `name_is_null`: it is NULL.
  std::string name;
  bool name_is_null = false;
};

/// Facts about the rank's process, from the kernel.
struct ProcessFacts {
  int threads = 0;
  int file_descriptors = 0;
  std::uint64_t resident_bytes = 0;  ///< without the free memory of the heap
  std::uint64_t locked_bytes = 0;
  std::int64_t cpu_ns = 0;
  /// Files mapped executable, each once.
  std::vector<std::string> libraries;
  /// "NAME=value".
  std::vector<std::string> environment;
};

/// The names of the environment variables that plugins have read so far in ranks of this process. Only variables that
/// were set. Thread safety: any thread.
std::set<std::string> variables_read();
/// A system or verbs call that the plugin makes in one of its functions: the second "setsockopt" in "connect". Number 0
/// stands for all.
struct CallInPlugin {
  std::string function;
  std::string call;
  std::uint32_t number = 1;
};

/// The system and verbs calls that the plugin made in init, devices, listen, connect and accept.
struct CallsInPlugin {
  /// The last call of each function; its number is the count of these calls.
  std::vector<CallInPlugin> last;
  /// Whether a call was made to fail, and the code that made it, "libnccl-net-foo.so+0x1234"; "" in a verbs call.
  bool failed = false;
  std::string failed_at;
  /// The code that closed a descriptor which was not open; "" if there was none.
  std::string invalid_close;
};

/// A line that the plugin logged with NCCL's logger.
struct LogLine {
  int level = 0;  ///< 2 is WARN
  std::uint64_t subsystems = 0;
  std::string file;
  int line = 0;
  std::string text;
  std::uint64_t count = 1;
};

}  // namespace plugfest::control
