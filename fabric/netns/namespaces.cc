#include "fabric/netns/namespaces.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace plugfest::netns {
namespace {

// Writes a setting of /proc/sys/net in the thread's network namespace. Returns an errno.
int set_sysctl(const char* name, std::string_view value) {
  const Descriptor file(open(fmt::format("/proc/sys/net/{}", name).c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 || write(file.get(), value.data(), value.size()) < 0) return errno;
  return 0;
}

}  // namespace

Descriptor open_current_namespace(const char* kind) {
  Descriptor fd(open(fmt::format("/proc/thread-self/ns/{}", kind).c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) throw_errno(fmt::format("open the current {} namespace", kind));
  return fd;
}

void throw_no_namespace(const char* kind) {
  const bool network = std::string_view(kind) == "net";
  if (errno != ENOSPC) throw_errno(network ? "create a network namespace" : "create a mount namespace");
  throw std::runtime_error(fmt::format(
      "cannot create another {} namespace: the limit user.max_{}_namespaces{} is reached: raise it with sysctl, use "
      "fewer hosts, or end other fabrics",
      network ? "network" : "mount", kind, network ? "" : " or fs.mount-max"));
}

Descriptor create_network_namespace(Forwarding forwarding) {
  if (unshare(CLONE_NEWNET) != 0) throw_no_namespace("net");
  // A new namespace inherits some IPv4 settings of the machine. Settings that the kernel lacks are ignored.
  set_sysctl("ipv4/conf/all/rp_filter", "0");
  set_sysctl("ipv4/conf/default/rp_filter", "0");
  // No other host can have a duplicate address or be a router, so the kernel need not wait for one.
  set_sysctl("ipv6/conf/default/accept_dad", "0");
  set_sysctl("ipv6/conf/default/router_solicitations", "0");

  const bool forwards = forwarding == Forwarding::kYes;
  errno = set_sysctl("ipv4/ip_forward", forwards ? "1" : "0");
  if (errno != 0 && forwards) throw_errno("set net.ipv4.ip_forward");
  if (forwards) {
    errno = set_sysctl("ipv4/fib_multipath_hash_policy", "1");  // include ports, so that queue pairs use all paths
    if (errno != 0 && errno != ENOENT) throw_errno("set net.ipv4.fib_multipath_hash_policy");
  }
  return open_current_namespace("net");
}

void enter_namespace(const Descriptor& fd, int kind) {
  if (setns(fd.get(), kind) != 0) throw_errno("enter a namespace");
}

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
  if (!folder) throw_file_error(kClasses, "read");
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
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) throw_errno("make the mounts of a host private");
  if (mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0 && errno != EPERM &&
      errno != EBUSY)
    throw_errno("mount sysfs on /sys");

  // Bind mounts, not symbolic links: the entries of a class are relative links to /sys/devices.
  const std::vector<Class> classes = open_classes();
  if (mount("plugfest", kClasses, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755") != 0)
    throw_errno("mount tmpfs on /sys/class");
  for (const Class& device_class : classes) {
    const std::string path = fmt::format("{}/{}", kClasses, device_class.name);
    const std::string source = fmt::format("/proc/thread-self/fd/{}", device_class.folder.get());
    if (mkdir(path.c_str(), 0755) != 0) throw_file_error(path, "create");
    if (mount(source.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0)
      throw_errno("mount a device class on " + path);
  }
  const std::string infiniband = fmt::format("{}/infiniband", kClasses);
  if (mkdir(infiniband.c_str(), 0755) != 0) throw_file_error(infiniband, "create");

  // The kernel frees the files of killed processes when the namespaces of the host end.
  if (mount("plugfest", kSharedMemory, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0 && errno != ENOENT)
    throw_errno("mount tmpfs on /dev/shm");
}

void set_host_names(std::string_view lines) {
  const auto replace = [](const char* path, std::string_view name, std::string_view text) {
    const std::string file = fmt::format("{}/.{}", kClasses, name);  // on the view's own tmpfs
    std::ofstream(file) << text;
    if (mount(file.c_str(), path, nullptr, MS_BIND, nullptr) != 0 && errno != ENOENT)
      throw_errno(fmt::format("replace {}", path));
  };
  std::ifstream machine("/etc/hosts");
  if (machine) replace("/etc/hosts", "hosts", (std::stringstream() << lines << machine.rdbuf()).str());
  replace("/etc/resolv.conf", "resolv", "# Hosts of a fabric have no name server.\n");
}

}  // namespace plugfest::netns
