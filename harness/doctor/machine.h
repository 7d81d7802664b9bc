// The machine as its files show it, and what has to be tried because no file tells.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/doctor/trials.h"

namespace plugfest::doctor {

/// A resource limit of the process; nothing stands for unlimited.
struct Limit {
  std::optional<std::uint64_t> soft;
  std::optional<std::uint64_t> hard;
};

/// Where a kernel module is. kOnDisk: the kernel can load it. kUnknown: the kernel has no folder of modules and shows
/// none, so it is built in or absent.
enum class Module : std::uint8_t { kLoaded, kBuiltIn, kOnDisk, kAbsent, kUnknown };

/// All that the findings are made from. Tests give it a folder with the files of another machine, and other trials.
/// Thread safety: const functions from any thread, as far as the trials allow it.
class Machine {
 public:
  /// `root`: what stands for "/"; `search`: folders of programs, as in PATH, below root; `cache`: where
  /// plugfest keeps what it has fetched.
  Machine(std::filesystem::path root, std::vector<std::string> search, std::string architecture, std::string cache,
          Trials trials);

  /// The one that this process runs on.
  static Machine here();

  const Trials& trials() const { return trials_; }
  /// As uname names it: "x86_64".
  const std::string& architecture() const { return architecture_; }
  const std::string& cache() const { return cache_; }

  /// A file's content without white space at its end; nothing when it cannot be read. `path` is absolute.
  std::optional<std::string> read(std::string_view path) const;
  std::optional<long> number(std::string_view path) const;
  bool exists(std::string_view path) const;
  /// Whether this process may open it for reading and writing.
  bool may_open(std::string_view path) const;
  /// Names in a folder, sorted; none when it cannot be read.
  std::vector<std::string> list(std::string_view folder) const;
  /// The last component of what a symbolic link points to; empty if it is none.
  std::string link_target(std::string_view path) const;
  /// Where a program is, as seen from `root`; empty when it is not in the search path.
  std::string program(std::string_view name) const;

  /// "6.1.0-18-amd64", and its first two numbers.
  std::string kernel() const;
  std::pair<int, int> kernel_version() const;
  Module module(const std::string& name) const;

  std::uint32_t user() const;
  bool is_root() const { return user() == 0; }
  /// Whether the process has CAP_NET_ADMIN in the user namespace that the kernel started with.
  bool rules_the_machine() const;
  /// `name` as in /proc/self/limits: "Max open files".
  Limit limit(std::string_view name) const;

 private:
  std::filesystem::path at(std::string_view path) const { return root_ / path.substr(path.find_first_not_of('/')); }

  std::filesystem::path root_;
  std::vector<std::string> search_;
  std::string architecture_;
  std::string cache_;
  Trials trials_;
};

}  // namespace plugfest::doctor
