// Builds namespaces and links from a graph, and holds them by descriptors.
#include "fabric/netns/fabric.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "fabric/netns/descriptor.h"
#include "fabric/netns/host_view.h"
#include "fabric/netns/netlink.h"
#include "fabric/netns/offload.h"
#include "fabric/netns/worker.h"

namespace plugfest::netns {
namespace {

using topology::Graph;
using topology::Host;
using topology::Interface;
using topology::Ipv4Address;
using topology::Link;
using topology::LinkEnd;

// Interfaces get numbers that are known beforehand, so that requests about them need no question first. Below these lie
// loopback and the tunnel devices that some kernels put into every namespace.
constexpr int kLoopbackIndex = 1;
constexpr int kOutOfBandIndex = 100;
constexpr int kBridgeIndex = 101;
constexpr int kFirstLinkIndex = 1000;

constexpr topology::Subnet kOutOfBand = {{10u << 24 | 255u << 16}, 16};
constexpr int kOutOfBandMtuBytes = 1500;

[[noreturn]] void throw_failed(const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

void enter(int namespace_fd, int kind) {
  if (setns(namespace_fd, kind) != 0) throw_failed("cannot enter a namespace");
}

Descriptor current_namespace(const char* kind) {
  Descriptor fd(open(fmt::format("/proc/thread-self/ns/{}", kind).c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) throw_failed(fmt::format("cannot hold a namespace ({})", kind));
  return fd;
}

// Writes a setting under /proc/sys/net; one that the kernel does not have needs no change.
void set_sysctl(const char* name, const char* value) {
  std::ofstream file(fmt::format("/proc/sys/net/{}", name));
  file << value << std::flush;
}

// Puts the calling thread into a new network namespace with the settings that every node has.
Descriptor new_network_namespace() {
  if (unshare(CLONE_NEWNET) != 0) throw_failed("network namespace");
  // Namespaces inherit some IPv4 settings of the machine.
  set_sysctl("ipv4/ip_forward", "0");
  set_sysctl("ipv4/conf/all/rp_filter", "0");
  set_sysctl("ipv4/conf/default/rp_filter", "0");
  // Nobody else is on these links: no second spent on duplicate addresses, no router asked for.
  set_sysctl("ipv6/conf/default/accept_dad", "0");
  set_sysctl("ipv6/conf/default/router_solicitations", "0");
  return current_namespace("net");
}

std::string link_name(const Graph& graph, const Link& link) {
  return fmt::format("link {}-{} {}", graph.node_name(link.ends[0]), graph.node_name(link.ends[1]), link.subnet.text());
}

int link_index(std::size_t interface) { return kFirstLinkIndex + static_cast<int>(interface); }

// Runs a function on a thread of its own, whose namespaces and current folder it may change, and passes on what it
// throws.
template <typename Function>
void on_own_thread(const Function& function) {
  std::exception_ptr failure;
  std::thread thread([&] {
    try {
      if (unshare(CLONE_FS) != 0) throw_failed("cannot leave the shared folder");
      function();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  thread.join();
  if (failure) std::rethrow_exception(failure);
}

struct HostNamespaces {
  Descriptor network;
  Descriptor mounts;
};

}  // namespace

struct Fabric::Parts {
  Graph graph;
  Options options;
  std::vector<HostNamespaces> hosts;  // as in graph.hosts
  Descriptor out_of_band;             // the namespace with the bridge
  Worker starter;                     // parent of all processes: they die with the thread that starts them

  void build();
  void make_links(Netlink& netlink);
  void set_up_host(std::size_t index);
  void make_out_of_band(Netlink& netlink);
  HostNamespaces& namespaces_of(std::string_view host) { return hosts[graph.host_index(host)]; }
};

void Fabric::Parts::build() {
  const Descriptor home_mounts = current_namespace("mnt");
  for (std::size_t i = 0; i < graph.hosts.size(); ++i) hosts.push_back({new_network_namespace(), {}});

  // Links are asked for from a namespace without interfaces: in any other a number could be taken.
  const Descriptor workshop = new_network_namespace();
  Netlink netlink;
  make_links(netlink);
  if (options.out_of_band) make_out_of_band(netlink);

  for (std::size_t i = 0; i < graph.hosts.size(); ++i) set_up_host(i);
  for (std::size_t i = 0; i < graph.hosts.size(); ++i) {
    try {
      enter(hosts[i].network.get(), CLONE_NEWNET);
      enter_host_view();
      hosts[i].mounts = current_namespace("mnt");
      if (options.prepare_host) options.prepare_host(graph.hosts[i]);
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("host {}: {}", graph.hosts[i].name, error.what()));
    }
    enter(home_mounts.get(), CLONE_NEWNS);
  }
}

void Fabric::Parts::make_links(Netlink& netlink) {
  for (const Link& link : graph.links) {
    const auto end = [&](const LinkEnd& end) {
      return VethEnd{hosts[end.index].network.get(), link_index(end.interface), graph.interface(end).name};
    };
    netlink.add(veth_request(end(link.ends[0]), end(link.ends[1]), link.mtu_bytes, link_name(graph, link)));
  }
  netlink.flush();
}

void Fabric::Parts::make_out_of_band(Netlink& netlink) {
  out_of_band = new_network_namespace();
  Netlink bridge;
  bridge.add(bridge_request(kBridgeIndex, "oob", kOutOfBandMtuBytes, "out-of-band bridge"));
  for (std::size_t i = 0; i < graph.hosts.size(); ++i) {
    const std::string purpose = fmt::format("host {}: oob0", graph.hosts[i].name);
    const VethEnd in_host = {hosts[i].network.get(), kOutOfBandIndex, "oob0"};
    const VethEnd port = {out_of_band.get(), link_index(i), fmt::format("port{}", i)};
    netlink.add(veth_request(in_host, port, kOutOfBandMtuBytes, purpose));
    netlink.flush();
    bridge.add(port_request(port.index, kBridgeIndex, purpose));
  }
  bridge.add(up_request(kBridgeIndex, true, "out-of-band bridge"));
  bridge.flush();
}

void Fabric::Parts::set_up_host(std::size_t index) {
  const Host& host = graph.hosts[index];
  enter(hosts[index].network.get(), CLONE_NEWNET);
  Netlink netlink;
  netlink.add(up_request(kLoopbackIndex, true, fmt::format("host {}: lo", host.name)));
  const auto set_up = [&](int number, const std::string& name, Ipv4Address address, int prefix_length) {
    const std::string purpose = fmt::format("host {}: {}", host.name, name);
    netlink.add(address_request(number, address, prefix_length, purpose));
    netlink.add(up_request(number, true, purpose));
  };
  for (std::size_t i = 0; i < host.interfaces.size(); ++i) {
    const Interface& interface = host.interfaces[i];
    set_up(link_index(i), interface.name, interface.address, interface.prefix_length);
  }
  if (options.out_of_band) {
    const Ipv4Address address = {kOutOfBand.network.value + 1 + static_cast<std::uint32_t>(index)};
    set_up(kOutOfBandIndex, "oob0", address, kOutOfBand.prefix_length);
  }
  netlink.flush();
}

Fabric::Fabric(Graph graph, Options options) : parts_(std::make_unique<Parts>()) {
  parts_->graph = std::move(graph);
  parts_->options = std::move(options);
  on_own_thread([this] { parts_->build(); });
}

Fabric::~Fabric() = default;

const Graph& Fabric::graph() const { return parts_->graph; }

Ipv4Address Fabric::out_of_band_address(std::string_view host) const {
  if (!parts_->options.out_of_band) throw std::runtime_error("this fabric has no out-of-band network");
  return {kOutOfBand.network.value + 1 + static_cast<std::uint32_t>(parts_->graph.host_index(host))};
}

pid_t Fabric::spawn(std::string_view host, const Command& command) {
  const HostNamespaces& namespaces = parts_->namespaces_of(host);
  try {
    return parts_->starter.run(
        [&] { return start_process(command, namespaces.network.get(), namespaces.mounts.get()); });
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("host {}: {}", host, error.what()));
  }
}

Finished Fabric::run(std::string_view host, const std::vector<std::string>& argv) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_failed("pipe");
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Command command;
  command.argv = argv;
  command.stdin_fd = nothing.get();
  command.stdout_fd = write_end.get();
  command.stderr_fd = write_end.get();
  const pid_t child = spawn(host, command);
  write_end.close();

  Finished finished;
  char buffer[65536];
  for (ssize_t got; (got = read(read_end.get(), buffer, sizeof(buffer))) != 0;) {
    if (got > 0) finished.output.append(buffer, static_cast<std::size_t>(got));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw_failed("waitpid");
  }
  finished.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return finished;
}

void Fabric::call(std::string_view host, const std::function<void()>& function) {
  const HostNamespaces& namespaces = parts_->namespaces_of(host);
  on_own_thread([&] {
    enter(namespaces.network.get(), CLONE_NEWNET);
    enter(namespaces.mounts.get(), CLONE_NEWNS);
    function();
  });
}

void Fabric::set_udp_segmentation(std::string_view host, std::string_view interface, bool on) {
  call(host, [&] { set_feature(std::string(interface), "tx-udp-segmentation", on); });
}

void Fabric::set_interface_up(std::string_view host, std::string_view interface, bool up) {
  call(host, [&] {
    const std::string purpose = fmt::format("host {}: {}", host, interface);
    const int index = interface_index(std::string(interface));
    if (index == 0) throw std::runtime_error(fmt::format("{}: no such interface", purpose));
    Netlink netlink;
    netlink.add(up_request(index, up, purpose));
    netlink.flush();
  });
}

}  // namespace plugfest::netns
