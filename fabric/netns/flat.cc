#include "fabric/netns/flat.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "fabric/netns/interfaces.h"
#include "fabric/netns/namespaces.h"
#include "fabric/netns/netlink.h"
#include "fabric/netns/supervision.h"
#include "fabric/system/file.h"

namespace plugfest::netns {
namespace {

using topology::Graph;
using topology::Host;
using topology::Interface;

// Locks the network namespace by binding an abstract socket name. The kernel frees the name with the last descriptor.
Descriptor lock_namespace() {
  Descriptor lock(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  constexpr char kName[] = "\0plugfest-flat";
  std::memcpy(name.sun_path, kName, sizeof(kName));
  if (bind(lock.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
    if (errno == EADDRINUSE)
      throw std::runtime_error("another fabric uses this machine's network namespace: wait until it has ended");
    throw_errno("lock this machine's network namespace");
  }
  return lock;
}

std::vector<std::string> all_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Host& host : graph.hosts)
    for (const Interface& interface : host.interfaces) names.push_back(flat_name(host, interface));
  return names;
}

void require_possible(const Graph& graph) {
  if (!graph.switches.empty())
    throw std::runtime_error(
        fmt::format("topology {}: its switches need network namespaces, in which rxe does not work "
                    "on this kernel: use a topology without switches, such as mesh:4",
                    graph.name));
  for (const std::string& name : all_names(graph)) {
    if (name.size() >= IFNAMSIZ) throw std::runtime_error(fmt::format("interface name {} is too long", name));
    if (if_nametoindex(name.c_str()) != 0)
      throw std::runtime_error(fmt::format("interface {0} exists already: run sudo ip link del {0}", name));
  }
}

void remove_interfaces(const std::vector<std::string>& names) noexcept {
  for (const std::string& name : names) {
    const auto index = static_cast<int>(if_nametoindex(name.c_str()));
    if (index == 0) continue;  // removed with its peer
    try {
      Netlink netlink;
      netlink.add(delete_request(index, name));
      netlink.flush();
    } catch (const std::exception&) {
      continue;  // this process has no way to report an error
    }
  }
}

void set_for_interface(const std::string& interface, const char* setting, std::string_view value) {
  const std::string path = fmt::format("/proc/sys/net/ipv4/conf/{}/{}", interface, setting);
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 || write(file.get(), value.data(), value.size()) < 0) throw_file_error(path, "write");
}

// With strict source validation the kernel drops all packets of a flat fabric, since answers leave through another
// interface.
void require_loose_source_validation() {
  char strict = '0';
  const Descriptor file(open("/proc/sys/net/ipv4/conf/all/rp_filter", O_RDONLY | O_CLOEXEC));
  if (read(file.get(), &strict, 1) == 1 && strict == '1')
    throw std::runtime_error(
        "net.ipv4.conf.all.rp_filter is 1, so the kernel drops packets between two interfaces of one machine: run\n"
        "    sudo sysctl -w net.ipv4.conf.all.rp_filter=2");
}

void make_links(const Graph& graph) {
  const auto name = [&](const topology::LinkEnd& end) {
    return flat_name(graph.hosts[end.index], graph.interface(end));
  };
  const Descriptor network = open_current_namespace("net");
  Netlink netlink;
  for (const topology::Link& link : graph.links) {
    const auto end = [&](std::size_t i) {
      const Interface& interface = graph.interface(link.ends[i]);
      return VethEnd{network.get(), 0, name(link.ends[i]), mac_of(interface.address)};
    };
    netlink.add(veth_request(end(0), end(1), link.mtu_bytes, fmt::format("link {}-{}", end(0).name, end(1).name)));
  }
  netlink.flush();
  for (const topology::Link& link : graph.links) {
    for (const topology::LinkEnd& end : link.ends) {
      const Interface& interface = graph.interface(end);
      const std::string interface_name = name(end);
      const auto index = static_cast<int>(if_nametoindex(interface_name.c_str()));
      set_for_interface(interface_name, "accept_local", "1");
      set_for_interface(interface_name, "rp_filter", "0");
      set_for_interface(interface_name, "arp_ignore", "1");  // otherwise each end answers ARP requests for both
      netlink.add(address_request(index, interface.address, interface.prefix_length, interface_name));
      netlink.add(up_request(index, true, interface_name));
      if (link.rate_bits_per_second > 0)
        netlink.add(rate_request(index, link.rate_bits_per_second, link.mtu_bytes, interface_name));
    }
  }
  netlink.flush();
}

}  // namespace

std::string flat_name(const Host& host, const Interface& interface) {
  return fmt::format("{}-{}", host.name, interface.name);
}

BuiltFabric build_flat(const Graph& graph, const Options& options) {
  require_possible(graph);
  require_loose_source_validation();
  BuiltFabric built;
  const Descriptor lock = lock_namespace();
  built.cleanup = std::make_unique<ExitCleanup>([names = all_names(graph)] { remove_interfaces(names); });
  built.home_mounts = open_current_namespace("mnt");
  make_links(graph);
  for (const Host& host : graph.hosts) {
    for (const Interface& interface : host.interfaces) require_carrier("host " + host.name, flat_name(host, interface));
    try {
      enter_host_view();
      built.hosts.push_back({open_current_namespace("net"), open_current_namespace("mnt")});
      if (options.prepare_host) options.prepare_host(host);
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("host {}: {}", host.name, error.what()));
    }
    enter_namespace(built.home_mounts, CLONE_NEWNS);
  }
  return built;
}

}  // namespace plugfest::netns
