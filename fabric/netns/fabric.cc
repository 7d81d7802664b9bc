#include "fabric/netns/fabric.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <stdexcept>
#include <thread>

#include "fabric/netns/build.h"
#include "fabric/netns/flat.h"
#include "fabric/netns/interfaces.h"
#include "fabric/netns/namespaces.h"
#include "fabric/netns/netlink.h"
#include "fabric/netns/worker.h"
#include "fabric/system/file.h"
#include "fabric/topology/host_names.h"

namespace plugfest::netns {
namespace {

using topology::Graph;
using topology::Ipv4Address;

// Runs a function on a new thread, whose namespaces and current folder it may change. Throws what the function throws.
template <typename Function>
void on_new_thread(const Function& function) {
  std::exception_ptr failure;
  std::thread thread([&] {
    try {
      if (unshare(CLONE_FS) != 0) throw_errno("unshare the current folder");
      function();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  thread.join();
  if (failure) std::rethrow_exception(failure);
}

// Sends one request about an interface of the host in whose namespace the thread is.
template <typename MakeRequest>
void send_interface_request(std::string_view host, std::string_view interface, const MakeRequest& make_request) {
  const std::string purpose = fmt::format("host {}: {}", host, interface);
  const int index = static_cast<int>(if_nametoindex(std::string(interface).c_str()));
  if (index == 0) throw std::runtime_error(fmt::format("{}: no such interface", purpose));
  Netlink netlink;
  netlink.add(make_request(index, purpose));
  netlink.flush();
}

}  // namespace

struct Fabric::Parts {
  Graph graph;
  Options options;
  BuiltFabric built;
  Worker starter;  // parent of all processes, which die with the thread that started them

  struct Namespaces {
    const Descriptor& network;
    const Descriptor& mounts;
  };
  Namespaces namespaces_of(std::string_view node) const {
    for (std::size_t i = 0; i < graph.switches.size(); ++i)
      if (graph.switches[i].name == node) return {built.switches[i], built.home_mounts};
    const HostNamespaces& host = built.hosts[graph.host_index(node)];
    return {host.network, host.mounts};
  }
};

Fabric::Fabric(Graph graph, Options options) : parts_(std::make_unique<Parts>()) {
  parts_->graph = std::move(graph);
  parts_->options = std::move(options);
  on_new_thread(
      [this] { parts_->built = (parts_->options.flat ? build_flat : build)(parts_->graph, parts_->options); });
}

Fabric::Fabric(Graph graph, Options options, BuiltFabric&& built) : parts_(std::make_unique<Parts>()) {
  parts_->graph = std::move(graph);
  parts_->options = std::move(options);
  parts_->built = std::move(built);
}

Fabric::~Fabric() = default;

const Graph& Fabric::graph() const { return parts_->graph; }
const BuiltFabric& Fabric::built() const { return parts_->built; }

Ipv4Address Fabric::out_of_band_address(std::string_view host) const {
  if (!parts_->options.out_of_band) throw std::runtime_error("this fabric has no out-of-band network");
  return topology::out_of_band_address(parts_->graph.host_index(host));
}

pid_t Fabric::spawn(std::string_view host, const Command& command) {
  const Parts::Namespaces namespaces = parts_->namespaces_of(host);
  try {
    pid_t child = -1;
    parts_->starter.run([&] { child = start_process(command, namespaces.network.get(), namespaces.mounts.get()); });
    return child;
  } catch (const CannotExecute& error) {
    throw CannotExecute(fmt::format("host {}: {}", host, error.what()), error.exit_code);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("host {}: {}", host, error.what()));
  }
}

Finished Fabric::run(std::string_view host, const std::vector<std::string>& argv) {
  Pipe output = make_pipe();
  const Descriptor null_device(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Command command;
  command.argv = argv;
  command.stdin_fd = null_device.get();
  command.stdout_fd = output.write_end.get();
  command.stderr_fd = output.write_end.get();
  const pid_t child = spawn(host, command);
  output.write_end.close();
  Finished finished;
  finished.output = read_all(output.read_end.get());
  finished.exit_code = await_exit(child);
  return finished;
}

void Fabric::call(std::string_view host, const std::function<void()>& function) {
  const Parts::Namespaces namespaces = parts_->namespaces_of(host);
  on_new_thread([&] {
    enter_namespace(namespaces.network, CLONE_NEWNET);
    enter_namespace(namespaces.mounts, CLONE_NEWNS);
    function();
  });
}

void Fabric::set_udp_segmentation(std::string_view host, std::string_view interface, bool on) {
  call(host, [&] { set_feature(std::string(interface), "tx-udp-segmentation", on); });
}

void Fabric::set_interface_up(std::string_view host, std::string_view interface, bool up) {
  call(host, [&] {
    send_interface_request(host, interface,
                           [&](int index, const std::string& purpose) { return up_request(index, up, purpose); });
    if (up) restore_routes(parts_->graph, host);
  });
  if (up) await_link(host, interface);
}

void Fabric::await_link(std::string_view node, std::string_view interface) {
  const Graph& graph = parts_->graph;
  const topology::LinkEnd* const here = graph.find_link_end(node, interface);
  if (here == nullptr) return;
  const std::array ends = {here, &graph.opposite(*here)};
  bool both_up = true;
  for (const topology::LinkEnd* const end : ends)
    call(graph.node_name(*end), [&] { both_up = both_up && is_interface_up(graph.interface(*end).name); });
  if (!both_up) return;
  for (const topology::LinkEnd* const end : ends)
    call(graph.node_name(*end), [&] { await_carrier(graph.interface(*end).name); });
}

void Fabric::set_interface_mtu(std::string_view host, std::string_view interface, int mtu_bytes) {
  call(host, [&] {
    send_interface_request(
        host, interface, [&](int index, const std::string& purpose) { return mtu_request(index, mtu_bytes, purpose); });
  });
}

void Fabric::change_address(std::string_view host, std::string_view interface, Ipv4Address from, Ipv4Address to) {
  const std::vector<topology::Interface>& interfaces = parts_->graph.host(host).interfaces;
  const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                  [&](const topology::Interface& candidate) { return candidate.name == interface; });
  const int length = found == interfaces.end() ? 32 : found->prefix_length;
  call(host, [&] {
    send_interface_request(host, interface, [&](int index, const std::string& purpose) {
      return remove_address_request(index, from, length, purpose);
    });
    send_interface_request(host, interface, [&](int index, const std::string& purpose) {
      return address_request(index, to, length, purpose);
    });
    restore_routes(parts_->graph, host);
  });
}

}  // namespace plugfest::netns
