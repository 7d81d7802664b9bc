// Mounts a new sysfs, a tmpfs over its class folder, and a tmpfs for shared memory.
#include "fabric/netns/host_view.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabric/netns/namespaces.h"
#include "fabric/system/descriptor.h"
#include "fabric/system/throw_errno.h"

namespace plugfest::netns {
namespace {

constexpr const char* kClasses = "/sys/class";
constexpr const char* kSharedMemory = "/dev/shm";

struct Class {
  std::string name;
  Descriptor folder;
};

std::vector<Class> open_classes() {
  const auto close_folder = [](DIR* folder) { closedir(folder); };
  const std::unique_ptr<DIR, decltype(close_folder)> folder(opendir(kClasses), close_folder);
  if (!folder) throw_errno(kClasses);
  std::vector<Class> classes;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name.starts_with(".") || name.starts_with("infiniband")) continue;
    Descriptor fd(openat(dirfd(folder.get()), entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() >= 0) classes.push_back({name, std::move(fd)});
  }
  return classes;
}

}  // namespace

void enter_host_view() {
  if (unshare(CLONE_NEWNS) != 0) throw_no_namespace("mnt");
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) throw_errno("mount namespace");
  if (mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0 && errno != EPERM &&
      errno != EBUSY) {
    throw_errno("sysfs on /sys");
  }

  // Bind mounts, not symbolic links: the entries of a class are relative links to /sys/devices.
  const std::vector<Class> classes = open_classes();
  if (mount("plugfest", kClasses, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755") != 0) {
    throw_errno("tmpfs on /sys/class");
  }
  for (const Class& one : classes) {
    const std::string path = fmt::format("{}/{}", kClasses, one.name);
    const std::string source = fmt::format("/proc/thread-self/fd/{}", one.folder.get());
    if (mkdir(path.c_str(), 0755) != 0) throw_errno(path);
    if (mount(source.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0) throw_errno(path);
  }
  const std::string infiniband = fmt::format("{}/infiniband", kClasses);
  if (mkdir(infiniband.c_str(), 0755) != 0) throw_errno(infiniband);

  // The kernel frees what killed processes left there when the namespaces of the host end.
  if (mount("plugfest", kSharedMemory, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0 && errno != ENOENT) {
    throw_errno("tmpfs on /dev/shm");
  }
}

void add_to_hosts_file(std::string_view line) {
  constexpr const char* kHosts = "/etc/hosts";
  std::ifstream machine(kHosts);
  if (!machine) return;
  const std::string copy = fmt::format("{}/.hosts", kClasses);  // on the view's own tmpfs
  std::ofstream(copy) << line << '\n' << machine.rdbuf();
  if (mount(copy.c_str(), kHosts, nullptr, MS_BIND, nullptr) != 0) throw_errno(kHosts);
}

}  // namespace plugfest::netns
