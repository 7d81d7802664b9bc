#include "harness/bench/tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>

#include "fabric/netns/build.h"
#include "fabric/netns/fabric.h"
#include "fabric/netns/namespaces.h"
#include "fabric/netns/netlink.h"
#include "fabric/roce/verbs/device/sysfs_view.h"
#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "fabric/system/number.h"
#include "harness/bench/bench_hosts.h"
#include "harness/bench/udp_socket.h"

namespace plugfest::bench {
namespace {

using topology::Graph;

constexpr const char* kPort = "4791";
constexpr int kFirstIndex = 1000;

// Memory of the machine's kernel in slabs and per-processor areas.
double kernel_kib() {
  std::ifstream file("/proc/meminfo");
  double sum = 0;
  std::string name;
  for (double kib = 0; file >> name >> kib; file.ignore(64, '\n'))
    if (name == "Slab:" || name == "Percpu:") sum += kib;
  return sum;
}

// Runs `function` in a new thread, in which it may change namespaces.
template <typename Function>
void in_new_thread(const Function& function) {
  std::async(std::launch::async, function).get();
}

Descriptor new_namespace() {
  if (unshare(CLONE_NEWNET) != 0) netns::throw_no_namespace("net");
  return Descriptor(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
}

// Waits until the kernel has removed all namespaces that were closed before. The kernel removes namespaces in batches,
// one after the other, and removes a veth pair with the batch of its namespace.
class RemovalMarker {
 public:
  RemovalMarker() {
    const Descriptor here(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    netns::Netlink netlink;
    int index = kFirstIndex;
    for (Descriptor& far : far_) {
      in_new_thread([&] { far = new_namespace(); });
      netlink.add(netns::veth_request({here.get(), index, name(index)}, {far.get(), index, name(index)}, 1500, "link"));
      ++index;
    }
    netlink.flush();
  }
  void close_and_wait() {
    int index = kFirstIndex;
    for (Descriptor& far : far_) {  // the batch of the second one starts after the batch of the first one
      far.close();
      while (if_nametoindex(name(index).c_str()) != 0) usleep(200);
      ++index;
    }
  }

 private:
  static std::string name(int index) { return fmt::format("last{}", index); }
  Descriptor far_[2];
};

// Measures `build` and the destruction of its result. Calls `use` in between.
UpAndDown measure(
    std::size_t hosts, const std::function<std::shared_ptr<void>()>& build, const std::function<void()>& use = [] {}) {
  UpAndDown result;
  RemovalMarker marker;
  const double before_kib = kernel_kib();
  const Clock::time_point up = Clock::now();
  std::shared_ptr<void> built = build();
  result.up_seconds = seconds_since(up);
  result.host_kib = (kernel_kib() - before_kib) / static_cast<double>(hosts);
  use();
  const Clock::time_point down = Clock::now();
  built.reset();
  marker.close_and_wait();
  result.down_seconds = seconds_since(down);
  return result;
}

// Creates only namespaces and veth pairs, and sets all interfaces up.
std::vector<Descriptor> build_bare(const Graph& graph) {
  netns::require_descriptors(graph);
  std::vector<Descriptor> nodes;
  in_new_thread([&] {
    for (std::size_t i = 0; i < graph.hosts.size() + graph.switches.size(); ++i) nodes.push_back(new_namespace());
    const Descriptor initial = new_namespace();
    netns::Netlink netlink;
    const auto end_of = [&](const topology::LinkEnd& end) {
      const std::size_t node = end.index + (end.node == topology::LinkEnd::Node::kHost ? 0 : graph.hosts.size());
      return netns::VethEnd{nodes[node].get(), kFirstIndex + static_cast<int>(end.interface),
                            graph.interface(end).name};
    };
    for (const topology::Link& link : graph.links)
      netlink.add(netns::veth_request(end_of(link.ends[0]), end_of(link.ends[1]), link.mtu_bytes, "bare link"));
    netlink.flush();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      netns::enter_namespace(nodes[i], CLONE_NEWNET);
      netns::Netlink inside;
      const auto& interfaces =
          i < graph.hosts.size() ? graph.hosts[i].interfaces : graph.switches[i - graph.hosts.size()].interfaces;
      for (std::size_t j = 0; j < interfaces.size(); ++j)
        inside.add(netns::up_request(kFirstIndex + static_cast<int>(j), true, "bare link"));
      inside.flush();
    }
  });
  return nodes;
}

// A socket in `host`. Reading fails after 10 s without a datagram.
Descriptor socket_in(netns::Fabric& fabric, const topology::Host& host) {
  Descriptor made;
  fabric.call(host.name, [&] {
    made = Descriptor(udp_socket());
    const timeval limit = {10, 0};
    setsockopt(made.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    bind_to(made.get(), endpoint("0.0.0.0", kPort));
  });
  return made;
}

// Sends a datagram between each pair of hosts. Errors: std::runtime_error if one does not arrive.
void require_all_pairs(netns::Fabric& fabric, const std::atomic<bool>& stop) {
  const std::vector<topology::Host>& hosts = fabric.graph().hosts;
  std::vector<Descriptor> sockets;
  for (const topology::Host& host : hosts) sockets.push_back(socket_in(fabric, host));
  for (std::size_t to = 1; to < hosts.size() && !stop; ++to) {
    const sockaddr_in address = endpoint(hosts[to].interfaces[0].address.text(), kPort);
    std::vector<bool> arrived(to);
    const auto receive = [&](int flags) {
      std::uint32_t sender = 0;
      if (recv(sockets[to].get(), &sender, sizeof(sender), flags) != sizeof(sender)) return false;
      arrived.at(sender) = true;
      return true;
    };
    for (std::uint32_t from = 0; from < to; ++from) {
      if (sendto(sockets[from].get(), &from, sizeof(from), 0, generic(address), sizeof(address)) != sizeof(from))
        throw_errno(fmt::format("send a message from {} to {}", hosts[from].name, hosts[to].name));
      while (receive(MSG_DONTWAIT)) continue;
    }
    for (std::size_t from = 0; from < to;)
      if (arrived[from])
        ++from;
      else if (!receive(0))
        throw std::runtime_error(fmt::format("{} does not reach {}", hosts[from].name, hosts[to].name));
  }
}

UpAndDown medians(const std::vector<UpAndDown>& rounds) {
  const auto of = [&](double UpAndDown::*member) {
    std::vector<double> values;
    for (const UpAndDown& round : rounds) values.push_back(round.*member);
    return median(values);
  };
  return {of(&UpAndDown::up_seconds), of(&UpAndDown::down_seconds), of(&UpAndDown::host_kib)};
}

}  // namespace

TreeResult measure_tree(int k, int rounds, const std::atomic<bool>& stop) {
  const Graph graph = topology::named(fmt::format("fat-tree:{}", k));
  TreeResult result;
  result.k = k;
  result.hosts = static_cast<int>(graph.hosts.size());
  result.switches = static_cast<int>(graph.switches.size());
  result.links = static_cast<int>(graph.links.size());

  netns::Options options;
  options.prepare_host = [](const topology::Host&) { roce::verbs::show_nics_of_this_host(); };
  std::vector<UpAndDown> ours;
  std::vector<UpAndDown> floor;
  std::vector<double> reach;
  for (int round = 0; round < rounds && !stop; ++round) {
    floor.push_back(
        measure(graph.hosts.size(), [&] { return std::make_shared<std::vector<Descriptor>>(build_bare(graph)); }));
    std::shared_ptr<netns::Fabric> fabric;
    ours.push_back(measure(
        graph.hosts.size(), [&] { return fabric = std::make_shared<netns::Fabric>(graph, options); },
        [&] {
          const Clock::time_point start = Clock::now();
          require_all_pairs(*fabric, stop);
          reach.push_back(seconds_since(start));
          fabric.reset();
        }));
  }
  if (ours.empty()) return result;
  result.ours = medians(ours);
  result.floor = medians(floor);
  result.reach_seconds = median(reach);
  return result;
}

}  // namespace plugfest::bench
