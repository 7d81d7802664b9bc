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

#include "fabric/netns/host_view.h"
#include "fabric/netns/kernel/netlink.h"
#include "fabric/netns/kernel/readiness.h"
#include "fabric/netns/kernel/requests.h"
#include "fabric/netns/sandbox/exit_cleanup.h"

namespace plugfest::netns {
namespace {

using topology::Graph;
using topology::Host;
using topology::Interface;

[[noreturn]] void throw_failed(const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

// A name in the network namespace that one socket can have; the kernel frees it with the last descriptor.
Descriptor take_turn() {
  Descriptor turn(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  constexpr char kName[] = "\0plugfest-flat";
  std::memcpy(name.sun_path, kName, sizeof(kName));
  if (bind(turn.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
    if (errno == EADDRINUSE) {
      throw std::runtime_error("another fabric lies in this machine's network namespace: wait for its end");
    }
    throw_failed("socket");
  }
  return turn;
}

std::vector<std::string> all_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Host& host : graph.hosts) {
    for (const Interface& interface : host.interfaces) names.push_back(flat_name(host, interface));
  }
  return names;
}

void require_possible(const Graph& graph) {
  if (!graph.switches.empty()) {
    throw std::runtime_error(
        fmt::format("topology {}: its switches need network namespaces, which these NICs do not work "
                    "in on this kernel: take one without, such as mesh:4",
                    graph.name));
  }
  for (const std::string& name : all_names(graph)) {
    if (name.size() >= IFNAMSIZ) throw std::runtime_error(fmt::format("interface {}: the name is too long", name));
    if (if_nametoindex(name.c_str()) != 0) {
      throw std::runtime_error(fmt::format("there is an interface {0} already: run sudo ip link del {0}", name));
    }
  }
}

void remove_interfaces(const std::vector<std::string>& names) noexcept {
  for (const std::string& name : names) {
    const auto index = static_cast<int>(if_nametoindex(name.c_str()));
    if (index == 0) continue;  // went with its peer
    try {
      Netlink netlink;
      netlink.add(delete_request(index, name));
      netlink.flush();
    } catch (const std::exception&) {
      continue;  // nobody is there to be told
    }
  }
}

void set_for_interface(const std::string& interface, const char* setting, std::string_view value) {
  const std::string path = fmt::format("/proc/sys/net/ipv4/conf/{}/{}", interface, setting);
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 || write(file.get(), value.data(), value.size()) < 0) throw_failed(path);
}

// Where the machine checks that an answer would leave by the interface that a packet came on, it drops all packets
// here.
void require_no_strict_source_check() {
  char strict = '0';
  const Descriptor file(open("/proc/sys/net/ipv4/conf/all/rp_filter", O_RDONLY | O_CLOEXEC));
  if (read(file.get(), &strict, 1) == 1 && strict == '1') {
    throw std::runtime_error(
        "net.ipv4.conf.all.rp_filter is 1 here, which drops packets between two interfaces of one machine: run\n"
        "    sudo sysctl -w net.ipv4.conf.all.rp_filter=2");
  }
}

void make_links(const Graph& graph) {
  const auto name = [&](const topology::LinkEnd& end) {
    return flat_name(graph.hosts[end.index], graph.interface(end));
  };
  const Descriptor here(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  Netlink netlink;
  for (const topology::Link& link : graph.links) {
    const auto end = [&](std::size_t i) {
      const Interface& interface = graph.interface(link.ends[i]);
      return VethEnd{here.get(), 0, name(link.ends[i]), mac_of(interface.address)};
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
      set_for_interface(interface_name, "arp_ignore", "1");  // else either end answers for both
      netlink.add(address_request(index, interface.address, interface.prefix_length, interface_name));
      netlink.add(up_request(index, true, interface_name));
      if (link.rate_bits_per_second > 0) {
        netlink.add(rate_request(index, link.rate_bits_per_second, link.mtu_bytes, interface_name));
      }
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
  require_no_strict_source_check();
  BuiltFabric built;
  const Descriptor turn = take_turn();
  built.afterwards = std::make_unique<ExitCleanup>([names = all_names(graph)] { remove_interfaces(names); });
  built.home_mounts = Descriptor(open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC));
  make_links(graph);
  for (const Host& host : graph.hosts) {
    for (const Interface& interface : host.interfaces) require_carrier("host " + host.name, flat_name(host, interface));
    try {
      enter_host_view();
      built.hosts.push_back({Descriptor(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)),
                             Descriptor(open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC))});
      if (options.prepare_host) options.prepare_host(host);
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("host {}: {}", host.name, error.what()));
    }
    enter_namespace(built.home_mounts, CLONE_NEWNS);
  }
  return built;
}

}  // namespace plugfest::netns
