// The kernel that a guest boots, and where it comes from.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace plugfest::guest {

/// Modules by name. A name that is built into the kernel counts as there.
struct ModuleNames {
  std::vector<std::string> required;
  std::vector<std::string> optional;
};

struct Kernel {
  std::filesystem::path image;
  std::string version;  ///< as uname -r will say: "6.1.0-18-amd64"
  /// Files of the modules asked for and those that these need, in the order in which they can be loaded.
  std::vector<std::filesystem::path> modules;
};

/// Finds a kernel with these modules: the image that `asked` names (its modules lie beside it as in an unpacked
/// package, or in /lib/modules), else one that is installed here, else one fetched earlier, else the package of the
/// running distribution, which is downloaded and kept in cache_folder(). Downloading needs no privileges.
///
/// `say`: told in one line before something that takes long. Errors: std::runtime_error, one line that says what is
/// missing and what to do.
Kernel find_kernel(const std::optional<std::filesystem::path>& asked, const ModuleNames& modules,
                   const std::function<void(const std::string&)>& say);

/// $XDG_CACHE_HOME/plugfest or ~/.cache/plugfest; /var/tmp/plugfest-UID for a user whose home cannot be written.
std::filesystem::path cache_folder();

}  // namespace plugfest::guest
