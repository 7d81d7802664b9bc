#include "fabric/rxe/rxe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <rdma/rdma_netlink.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>

#include "fabric/netns/flat.h"
#include "fabric/netns/netlink.h"
#include "fabric/system/file.h"

namespace plugfest::rxe {

namespace {

using Message = std::unique_ptr<nl_msg, decltype(&nlmsg_free)>;

Message new_message(int command, int flags) {
  Message message(nlmsg_alloc_simple(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), NLM_F_REQUEST | flags), nlmsg_free);
  if (!message) throw std::bad_alloc();
  return message;
}

// Adds name and index of one device to a map.
int add_to_map(nl_msg* message, void* devices) {
  nlattr* attributes[RDMA_NLDEV_ATTR_MAX] = {};
  if (nlmsg_parse(nlmsg_hdr(message), 0, attributes, RDMA_NLDEV_ATTR_MAX - 1, nullptr) < 0) return NL_SKIP;
  if (attributes[RDMA_NLDEV_ATTR_DEV_NAME] != nullptr && attributes[RDMA_NLDEV_ATTR_DEV_INDEX] != nullptr) {
    (*static_cast<std::map<std::string, std::uint32_t>*>(
        devices))[nla_get_string(attributes[RDMA_NLDEV_ATTR_DEV_NAME])] =
        nla_get_u32(attributes[RDMA_NLDEV_ATTR_DEV_INDEX]);
  }
  return NL_OK;
}

class RdmaNetlink {
 public:
  RdmaNetlink() : socket_(nl_socket_alloc(), nl_socket_free) {
    if (!socket_) throw std::bad_alloc();
    check(nl_connect(socket_.get(), NETLINK_RDMA), "RDMA netlink");
  }

  /// Sends a request and waits for the acknowledgement.
  void request(const Message& message, const std::string& purpose) {
    check(nl_send_auto(socket_.get(), message.get()), purpose);
    check(nl_wait_for_ack(socket_.get()), purpose);
  }

  std::map<std::string, std::uint32_t> devices() {
    std::map<std::string, std::uint32_t> found;
    nl_socket_modify_cb(socket_.get(), NL_CB_VALID, NL_CB_CUSTOM, add_to_map, &found);
    const Message message = new_message(RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
    check(nl_send_auto(socket_.get(), message.get()), "RDMA devices");
    check(nl_recvmsgs_default(socket_.get()), "RDMA devices");
    return found;
  }

 private:
  static void check(int result, const std::string& purpose) {
    if (result < 0) throw std::runtime_error(fmt::format("{}: {}", purpose, nl_geterror(result)));
  }

  std::unique_ptr<nl_sock, decltype(&nl_socket_free)> socket_;
};

}  // namespace

void add_device(const std::string& name, const std::string& interface) {
  const Message message = new_message(RDMA_NLDEV_CMD_NEWLINK, NLM_F_ACK);
  if (nla_put_string(message.get(), RDMA_NLDEV_ATTR_DEV_NAME, name.c_str()) < 0 ||
      nla_put_string(message.get(), RDMA_NLDEV_ATTR_LINK_TYPE, "rxe") < 0 ||
      nla_put_string(message.get(), RDMA_NLDEV_ATTR_NDEV_NAME, interface.c_str()) < 0) {
    throw std::bad_alloc();
  }
  RdmaNetlink().request(message, fmt::format("rxe device {} on {}", name, interface));
}

void remove_device(const std::string& name) {
  RdmaNetlink netlink;
  const auto devices = netlink.devices();
  const auto device = devices.find(name);
  if (device == devices.end()) return;
  const Message message = new_message(RDMA_NLDEV_CMD_DELLINK, NLM_F_ACK);
  if (nla_put_u32(message.get(), RDMA_NLDEV_ATTR_DEV_INDEX, device->second) < 0) throw std::bad_alloc();
  netlink.request(message, fmt::format("removing the rxe device {}", name));
}

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

namespace {

namespace fs = std::filesystem;

bool lists_module(const fs::path& file) {
  std::ifstream stream(file);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  return text.find(fmt::format("/{}.ko", kModule)) != std::string::npos;
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
      "plugfest "
      "doctor, which names the package if one exists",
      release, where);
}

std::string kernel_release() {
  utsname name = {};
  uname(&name);
  return name.release;
}

namespace {

namespace fs = std::filesystem;

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
    for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(libraries) / "libibverbs", error)) {
      if (entry.path().filename().string().starts_with("librxe-")) return;
    }
  }
  throw std::runtime_error("libibverbs has no driver for rxe: run sudo apt-get install ibverbs-providers");
}

/// Whether UDP port 4791 (RoCE) is open in the calling thread's network namespace. The list includes sockets of the
/// kernel.
bool roce_port_is_open() {
  std::ifstream rows("/proc/thread-self/net/udp");
  for (std::string row; std::getline(rows, row);) {
    if (row.find(":12B7 ") != std::string::npos) return true;
  }
  return false;
}

/// Creates a device in a new network namespace and checks whether the kernel listens in it. Uses a child process, which
/// leaves the caller's namespace unchanged.
bool works_in_namespaces() {
  const pid_t probe = fork();
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
      works = roce_port_is_open();
      remove_device(device);
    } catch (const std::exception&) {
      works = false;
    }
    _exit(works ? 0 : 1);
  }
  int status = 0;
  while (waitpid(probe, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::string describe(Layout layout) {
  return layout == Layout::kNamespaces ? "hosts in namespaces" : "all hosts in one namespace";
}

Rxe::Rxe(bool may_change_host) {
  require_root();
  require_verbs_driver();
  if (!is_loaded()) {
    if (const std::string reason = explain_missing_module(kernel_release()); !reason.empty())
      throw std::runtime_error(reason);
    if (!may_change_host) {
      throw std::runtime_error(fmt::format(
          "the module {0} is not loaded: run sudo modprobe {0}, or add --allow-host-changes to load it for this "
          "run, or use --nic vm",
          kModule));
    }
    if (run(fmt::format("modprobe {}", kModule)) != 0) {
      throw std::runtime_error(
          fmt::format("modprobe {0} failed: run sudo modprobe {0} to see the reason, or use --nic vm", kModule));
    }
    unload_ = std::make_unique<netns::ExitCleanup>([] { run(fmt::format("modprobe -r {}", kModule)); });
  }
  if (works_in_namespaces()) {
    layout_ = Layout::kNamespaces;
  } else if (!roce_port_is_open()) {
    throw std::runtime_error(
        "this kernel's rxe works only in the machine's initial network namespace, and this is another one: run "
        "plugfest "
        "outside the container, or use --nic vm");
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
