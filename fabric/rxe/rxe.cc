#include "fabric/rxe/rxe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>

#include "fabric/netns/flat.h"
#include "fabric/netns/host_process.h"
#include "fabric/netns/netlink.h"
#include "fabric/rxe/devices.h"
#include "fabric/system/file.h"
#include "fabric/system/process.h"

namespace plugfest::rxe {
namespace {

namespace fs = std::filesystem;

bool lists_module(const fs::path& file) {
  return try_read_file(file).value_or("").find(fmt::format("/{}.ko", kModule)) != std::string::npos;
}

void require_root() {
  std::ifstream map("/proc/self/uid_map");
  std::uint64_t inside = 1, outside = 1, count = 0;
  map >> inside >> outside >> count;
  if (geteuid() == 0 && inside == 0 && outside == 0 && count == 4294967295) return;
  throw std::runtime_error(
      "--nic rxe creates devices in the machine's kernel, which needs root: use sudo, or use --nic vm");
}

int run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()); }

void require_verbs_driver() {
  for (const char* libraries : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(libraries) / "libibverbs", error))
      if (entry.path().filename().string().starts_with("librxe-")) return;
  }
  throw std::runtime_error("libibverbs has no driver for rxe: run sudo apt-get install ibverbs-providers");
}

bool has_roce_port() { return netns::is_listening(4791, netns::HostProcess::Protocol::kUdp); }

/// Creates a device in a new network namespace and checks whether the kernel listens in it. Uses a child process, which
/// leaves the caller's namespace unchanged.
bool works_in_namespaces() {
  const pid_t probe = fork();
  if (probe < 0) throw_errno("fork a process");
  if (probe == 0) {
    bool works = false;
    const std::string device = fmt::format("plugfest{}", getpid());
    try {
      if (unshare(CLONE_NEWNET) != 0) _exit(1);
      const Descriptor network(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
      netns::Netlink netlink;
      netlink.add(netns::veth_request({network.get(), 10, "p0"}, {network.get(), 11, "p1"}, 1500, "probe"));
      netlink.add(netns::up_request(10, true, "probe"));
      netlink.flush();
      add_device(device, "p0");
      works = has_roce_port();
      remove_device(device);
    } catch (const std::exception&) {
      works = false;
    }
    _exit(works ? 0 : 1);
  }
  return await_exit(probe) == 0;
}

}  // namespace

bool is_loaded() { return fs::exists(fmt::format("/sys/module/{}", kModule)); }

std::string explain_missing_module(const std::string& release, const fs::path& modules) {
  const fs::path folder = modules / release;
  if (lists_module(folder / "modules.dep") || lists_module(folder / "modules.builtin")) return "";
  const std::string where = fs::exists(folder) ? fmt::format("{} is not in {}", kModule, folder.string())
                                               : fmt::format("the folder {} does not exist", folder.string());
  return fmt::format(
      "kernel {} has no module for rxe devices: {}: use --nic vm, which boots a kernel with the module, or run "
      "plugfest doctor, which names the package if one exists",
      release, where);
}

std::string kernel_release() {
  utsname name = {};
  uname(&name);
  return name.release;
}

std::string describe(Layout layout) {
  return layout == Layout::kNamespaces ? "hosts in namespaces" : "all hosts in one namespace";
}

Rxe::Rxe(bool may_change_host) {
  require_root();
  require_verbs_driver();
  if (!is_loaded()) {
    if (const std::string reason = explain_missing_module(kernel_release()); !reason.empty())
      throw std::runtime_error(reason);
    if (!may_change_host)
      throw std::runtime_error(fmt::format(
          "the module {0} is not loaded: run sudo modprobe {0}, or add --allow-host-changes to load it for this "
          "run, or use --nic vm",
          kModule));
    if (run(fmt::format("modprobe {}", kModule)) != 0)
      throw std::runtime_error(
          fmt::format("modprobe {0} failed: run sudo modprobe {0} to see the reason, or use --nic vm", kModule));
    unload_ = std::make_unique<netns::ExitCleanup>([] { run(fmt::format("modprobe -r {}", kModule)); });
  }
  if (works_in_namespaces()) {
    layout_ = Layout::kNamespaces;
  } else if (!has_roce_port()) {
    throw std::runtime_error(
        "this kernel's rxe works only in the machine's initial network namespace, and this is another one: run "
        "plugfest outside the container, or use --nic vm");
  }
}

void Rxe::prepare_host(const topology::Host& host) const {
  std::vector<std::string> names;
  for (const topology::Interface& interface : host.interfaces) {
    names.push_back(fmt::format("{}_{}", host.name, interface.name));
    add_device(names.back(), layout_ == Layout::kFlat ? netns::flat_name(host, interface) : interface.name);
  }
  show_devices(names);
}

}  // namespace plugfest::rxe
