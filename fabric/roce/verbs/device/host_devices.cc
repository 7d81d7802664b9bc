#include "fabric/roce/verbs/device/host_devices.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabric/roce/verbs/device/interface.h"
#include "fabric/roce/verbs/device/sysfs_view.h"
#include "fabric/system/file.h"

namespace plugfest::roce {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDev = "/dev";
constexpr const char* kNodes = "/dev/infiniband";
constexpr unsigned long kMountFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

// Replaces /dev, where no folder can be created, by one that can be written. Its entries are links to the old ones,
// which a bind mount keeps together: the kernel finds the folder of terminals beside ptmx.
void make_dev_writable() {
  const Descriptor machine(open(kDev, O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!machine) throw_errno(kDev);
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kDev)) names.push_back(entry.path().filename());
  if (mount("plugfest", kDev, "tmpfs", kMountFlags, "mode=755") != 0) throw_errno("tmpfs on /dev");
  const fs::path kept = fs::path(kDev) / ".machine";
  fs::create_directory(kept);
  const std::string source = fmt::format("/proc/thread-self/fd/{}", machine.get());
  if (mount(source.c_str(), kept.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) throw_errno(kept);
  if (umount2(kept.c_str(), MNT_DETACH) != 0) throw_errno(kept);  // the copy of the new /dev, which covers the old one
  for (const std::string& name : names) fs::create_symlink(kept.filename() / name, fs::path(kDev) / name);
}

void show_nodes(const std::vector<Interface>& interfaces) {
  const auto node_of = [](const Interface& interface) { return fs::path(kNodes) / node_name(interface); };
  const auto is_shown = [&](const Interface& interface) { return fs::is_symlink(node_of(interface)); };
  if (std::all_of(interfaces.begin(), interfaces.end(), is_shown)) return;
  if (!fs::exists(kNodes)) {
    make_dev_writable();
    fs::create_directory(kNodes);
  } else if (mount("plugfest", kNodes, "tmpfs", kMountFlags, "mode=755") != 0) {
    throw_errno(kNodes);
  }
  for (const Interface& interface : interfaces) fs::create_symlink("/dev/null", node_of(interface));
}

}  // namespace

void show_nics_of_this_host() {
  const std::vector<Interface> interfaces = list_nic_interfaces();
  write_sysfs_view("/sys/class/infiniband", interfaces);
  show_nodes(interfaces);
}

}  // namespace plugfest::roce
