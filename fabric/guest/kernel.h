// Finds or downloads the kernel of a guest, resolves its modules, and builds its initial file system.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest::guest {

/// Names of kernel modules. A module that is built into the kernel counts as present.
struct ModuleNames {
  std::vector<std::string> required;
  std::vector<std::string> optional;
};

/// The exit code and the output of a program.
struct Finished {
  int exit_code = 0;   ///< 127 if the program does not exist, 128 plus the signal's number if a signal killed it
  std::string output;  ///< standard output
  std::string errors;  ///< standard error
};

/// Runs a program with empty standard input and waits until it has exited. `argv[0]` is searched in PATH. `folder`: the
/// working folder, empty for the current one. The program is killed when this process exits.
/// Errors: std::system_error if no process can be created.
Finished run_program(std::vector<std::string> argv, const std::string& folder = {});

/// Builds the initial file system of a guest (initramfs) in memory: a cpio archive in the "newc" format.
class Archive {
 public:
  void add_folder(std::string_view path) { add(path, 0040755, {}); }
  void add_file(std::string_view path, std::string_view content) { add(path, 0100644, content); }
  void add_program(std::string_view path, std::string_view content) { add(path, 0100755, content); }

  /// Returns the complete archive. Call it once, after all entries have been added.
  std::string finish();

 private:
  void add(std::string_view path, unsigned mode, std::string_view content);

  std::string bytes_;
  unsigned entries_ = 0;
};

/// Downloads the distribution's newest stock kernel, without installing it, and unpacks boot/ and the files of
/// `modules` in lib/modules/ to `folder`, which is created completely or not at all. Removes partial files of an
/// earlier call that was killed. `report_progress`: gets one line of text when a download begins. Errors:
/// std::runtime_error, one line.
void fetch_kernel_package(const std::filesystem::path& folder, const ModuleNames& modules,
                          const std::function<void(const std::string&)>& report_progress);

/// Returns the files of the named modules and their dependencies, each after its dependencies. `folder`:
/// /lib/modules/VERSION. Errors: std::runtime_error that names a required module that is neither present nor built in.
std::vector<std::filesystem::path> modules_in_order(const std::filesystem::path& folder, const ModuleNames& names);

/// The content of a module, decompressed if necessary (.ko.xz, .ko.zst). Errors: std::runtime_error.
std::string module_content(const std::filesystem::path& file);

struct Kernel {
  std::filesystem::path image;
  std::string version;  ///< the output of `uname -r`: "6.1.0-18-amd64"
  /// Files of the requested modules and their dependencies, in load order.
  std::vector<std::filesystem::path> modules;
};

/// Finds a kernel with these modules. Tries in this order: the image or unpacked package at `path`, if set (modules are
/// expected in the package or in /lib/modules); an installed kernel; a kernel in cache_folder(); the distribution's
/// kernel package, which is downloaded to cache_folder(). Downloading needs no privileges.
///
/// `report_progress`: gets one line of text before a download. Errors: std::runtime_error, one line with the missing
/// part and a remedy.
Kernel find_kernel(const std::optional<std::filesystem::path>& path, const ModuleNames& modules,
                   const std::function<void(const std::string&)>& report_progress);

/// $XDG_CACHE_HOME/plugfest or ~/.cache/plugfest; /var/tmp/plugfest-UID if the home folder is not writable.
std::filesystem::path cache_folder();

}  // namespace plugfest::guest
