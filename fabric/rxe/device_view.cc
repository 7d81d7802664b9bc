#include "fabric/rxe/device_view.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "fabric/system/descriptor.h"
#include "fabric/system/throw_errno.h"

namespace plugfest::rxe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNodes = "/dev/infiniband";
constexpr const char* kDevices = "/sys/devices/virtual";

std::string line_of(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

// The name of a device's verbs interface, such as "uverbs3".
std::string node_of(const std::string& device) {
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(kDevices) / "infiniband_verbs")) {
    if (line_of(entry.path() / "ibdev") == device) return entry.path().filename().string();
  }
  throw std::runtime_error(fmt::format("device {} has no verbs interface: run sudo modprobe ib_uverbs", device));
}

void link_class(const char* name, const std::vector<std::string>& entries) {
  const fs::path folder = fs::path("/sys/class") / name;
  fs::create_directories(folder);
  for (const std::string& entry : entries) {
    fs::create_symlink(fs::path("../../devices/virtual") / name / entry, folder / entry);
  }
}

// Replaces /dev/infiniband by a folder with bind mounts of these nodes.
void show_nodes(std::vector<std::string> names) {
  names.emplace_back("rdma_cm");
  std::vector<Descriptor> nodes;
  for (const std::string& name : names) {
    nodes.emplace_back(open(fmt::format("{}/{}", kNodes, name).c_str(), O_PATH | O_CLOEXEC));
  }
  if (mount("plugfest", kNodes, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755") != 0) throw_errno(kNodes);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (nodes[i].get() < 0) continue;  // rdma_cm is a separate module, which may be missing
    const std::string target = fmt::format("{}/{}", kNodes, names[i]);
    const Descriptor file(open(target.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
    const std::string node = fmt::format("/proc/thread-self/fd/{}", nodes[i].get());
    if (mount(node.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0) throw_errno(target);
  }
}

}  // namespace

void show_devices(const std::vector<std::string>& names) {
  std::vector<std::string> nodes;
  std::transform(names.begin(), names.end(), std::back_inserter(nodes), node_of);
  link_class("infiniband", names);
  link_class("infiniband_verbs", nodes);
  // The version of the interface between libibverbs and the kernel; 6 since Linux 2.6.
  std::ofstream("/sys/class/infiniband_verbs/abi_version") << "6\n";
  show_nodes(nodes);
}

}  // namespace plugfest::rxe
