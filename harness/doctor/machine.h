// A machine: its files and trials. The input of all examinations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/doctor/trials.h"

namespace plugfest::doctor {

/// A resource limit of the process; std::nullopt: unlimited.
struct Limit {
  std::optional<std::uint64_t> soft;
  std::optional<std::uint64_t> hard;
};

/// State of a kernel module. kOnDisk: the kernel can load it. kUnknown: built in or absent, since the kernel has no
/// folder of modules.
enum class Module : std::uint8_t { kLoaded, kBuiltIn, kOnDisk, kAbsent, kUnknown };

/// Reads a machine's files below a root, and holds the trials. Tests pass a folder with the files of another machine,
/// and fake trials. Thread safety: the same as the trials'.
class Machine {
 public:
  /// `root`: the folder that stands for "/". `search`: folders of programs below `root`, as in PATH. `cache`:
  /// plugfest's folder for downloads. `plugfest`: the command that the user typed for this program.
  Machine(std::filesystem::path root, std::vector<std::string> search, std::string architecture, std::string cache,
          std::string plugfest, Trials trials);

  /// The machine on which this process runs.
  static Machine this_machine(std::string plugfest);

  const Trials& trials() const { return trials_; }
  /// The architecture as in uname: "x86_64".
  const std::string& architecture() const { return architecture_; }
  const std::string& cache() const { return cache_; }
  const std::string& plugfest() const { return plugfest_; }

  /// A file's content without trailing white space; std::nullopt if it cannot be read. `path` is absolute.
  std::optional<std::string> read(std::string_view path) const;
  std::optional<long> number(std::string_view path) const;
  bool exists(std::string_view path) const;
  /// Whether this process may open `path` for reading and writing.
  bool may_open(std::string_view path) const;
  /// Names in a folder, sorted; empty if it cannot be read.
  std::vector<std::string> list(std::string_view folder) const;
  /// The last component of a symbolic link's target; empty if `path` is not a symbolic link.
  std::string link_target(std::string_view path) const;
  /// A program's path below `root`; empty if it is not in the search path.
  std::string program(std::string_view name) const;

  /// The kernel's release, "6.1.0-18-amd64".
  std::string kernel() const;
  /// The first two numbers of the release.
  std::pair<int, int> kernel_version() const;
  Module module(const std::string& name) const;

  std::uint32_t user() const;
  bool is_root() const { return user() == 0; }
  /// Whether the process has CAP_NET_ADMIN in the initial user namespace.
  bool has_net_admin() const;
  /// A limit by its name in /proc/self/limits: "Max open files".
  Limit limit(std::string_view name) const;

 private:
  std::filesystem::path at(std::string_view path) const { return root_ / path.substr(path.find_first_not_of('/')); }

  std::filesystem::path root_;
  std::vector<std::string> search_;
  std::string architecture_;
  std::string cache_;
  std::string plugfest_;
  Trials trials_;
};

}  // namespace plugfest::doctor
