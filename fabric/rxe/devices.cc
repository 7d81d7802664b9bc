#include "fabric/rxe/devices.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <rdma/rdma_netlink.h>
#include <sys/mount.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>

#include "fabric/system/file.h"

namespace plugfest::rxe {
namespace {

namespace fs = std::filesystem;

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
    auto& found = *static_cast<std::map<std::string, std::uint32_t>*>(devices);
    found[nla_get_string(attributes[RDMA_NLDEV_ATTR_DEV_NAME])] = nla_get_u32(attributes[RDMA_NLDEV_ATTR_DEV_INDEX]);
  }
  return NL_OK;
}

class RdmaNetlink {
 public:
  RdmaNetlink() : socket_(nl_socket_alloc(), nl_socket_free) {
    if (!socket_) throw std::bad_alloc();
    check(nl_connect(socket_.get(), NETLINK_RDMA), "open an RDMA netlink socket");
  }

  /// Sends a request and waits for the acknowledgement. Errors: std::runtime_error "cannot ACTION: REASON".
  void request(const Message& message, const std::string& action) {
    check(nl_send_auto(socket_.get(), message.get()), action);
    check(nl_wait_for_ack(socket_.get()), action);
  }

  std::map<std::string, std::uint32_t> devices() {
    std::map<std::string, std::uint32_t> found;
    nl_socket_modify_cb(socket_.get(), NL_CB_VALID, NL_CB_CUSTOM, add_to_map, &found);
    const Message message = new_message(RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
    check(nl_send_auto(socket_.get(), message.get()), "list the RDMA devices");
    check(nl_recvmsgs_default(socket_.get()), "list the RDMA devices");
    return found;
  }

 private:
  static void check(int result, const std::string& action) {
    if (result < 0) throw std::runtime_error(fmt::format("cannot {}: {}", action, nl_geterror(result)));
  }

  std::unique_ptr<nl_sock, decltype(&nl_socket_free)> socket_;
};

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
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(kDevices) / "infiniband_verbs"))
    if (line_of(entry.path() / "ibdev") == device) return entry.path().filename().string();
  throw std::runtime_error(fmt::format("device {} has no verbs interface: run sudo modprobe ib_uverbs", device));
}

void link_class(const char* name, const std::vector<std::string>& entries) {
  const fs::path folder = fs::path("/sys/class") / name;
  fs::create_directories(folder);
  for (const std::string& entry : entries)
    fs::create_symlink(fs::path("../../devices/virtual") / name / entry, folder / entry);
}

// Replaces /dev/infiniband by a folder with bind mounts of these nodes.
void show_nodes(std::vector<std::string> names) {
  names.emplace_back("rdma_cm");
  std::vector<Descriptor> nodes;
  for (const std::string& name : names)
    nodes.emplace_back(open(fmt::format("{}/{}", kNodes, name).c_str(), O_PATH | O_CLOEXEC));
  if (mount("plugfest", kNodes, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755") != 0)
    throw_errno(fmt::format("mount tmpfs on {}", kNodes));
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (nodes[i].get() < 0) continue;  // rdma_cm is a separate module, which may be missing
    const std::string target = fmt::format("{}/{}", kNodes, names[i]);
    const Descriptor file(open(target.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
    const std::string node = fmt::format("/proc/thread-self/fd/{}", nodes[i].get());
    if (mount(node.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0)
      throw_errno("mount the device node on " + target);
  }
}

}  // namespace

void add_device(const std::string& name, const std::string& interface) {
  const Message message = new_message(RDMA_NLDEV_CMD_NEWLINK, NLM_F_ACK);
  if (nla_put_string(message.get(), RDMA_NLDEV_ATTR_DEV_NAME, name.c_str()) < 0 ||
      nla_put_string(message.get(), RDMA_NLDEV_ATTR_LINK_TYPE, "rxe") < 0 ||
      nla_put_string(message.get(), RDMA_NLDEV_ATTR_NDEV_NAME, interface.c_str()) < 0)
    throw std::bad_alloc();
  RdmaNetlink().request(message, fmt::format("create the rxe device {} on {}", name, interface));
}

void remove_device(const std::string& name) {
  RdmaNetlink netlink;
  const auto devices = netlink.devices();
  const auto device = devices.find(name);
  if (device == devices.end()) return;
  const Message message = new_message(RDMA_NLDEV_CMD_DELLINK, NLM_F_ACK);
  if (nla_put_u32(message.get(), RDMA_NLDEV_ATTR_DEV_INDEX, device->second) < 0) throw std::bad_alloc();
  netlink.request(message, fmt::format("remove the rxe device {}", name));
}

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
