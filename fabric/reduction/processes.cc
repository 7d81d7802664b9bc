#include "fabric/reduction/processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

#include "fabric/netns/netlink.h"
#include "fabric/reduction/control.h"
#include "fabric/reduction/messages.h"
#include "fabric/system/clock.h"
#include "fabric/system/process.h"

namespace plugfest::reduction {
namespace {

using topology::Ipv4Address;

constexpr int kLoopbackIndex = 1;
constexpr int kSocketBufferBytes = 4 << 20;  // the kernel gives what net.core.rmem_max permits
constexpr Nanoseconds kReportTimeout = 2'000'000'000;
constexpr int kFirstPassed = 3;  // the first descriptor of a program after its standard ones

sockaddr_in socket_address(Ipv4Address address, std::uint16_t port) {
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(address.value);
  name.sin_port = htons(port);
  return name;
}

// A socket in the calling thread's network namespace that is bound to an address.
Descriptor bound_socket(int type, Ipv4Address address, std::uint16_t port) {
  Descriptor socket(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  const sockaddr_in name = socket_address(address, port);
  const int yes = 1;
  if (socket && type == SOCK_STREAM) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (!socket || bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0)
    throw_errno(fmt::format("bind a socket of the reduction to {}:{}", address.text(), port));
  for (const int option : {SO_RCVBUF, SO_SNDBUF})
    if (type == SOCK_DGRAM)
      setsockopt(socket.get(), SOL_SOCKET, option, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  return socket;
}

Descriptor listen_at(const ManagerPlace& place) {
  Descriptor socket = bound_socket(SOCK_STREAM, place.address, kControlPort);
  if (listen(socket.get(), SOMAXCONN) != 0) throw_errno("listen for the aggregation manager at " + place.text());
  return socket;
}

// A connection to the manager from its own namespace. This shows the manager that it is not the connection of a rank.
Descriptor connect_locally(const ManagerPlace& place, const std::string& user) {
  Descriptor socket = bound_socket(SOCK_STREAM, place.address, 0);
  const sockaddr_in manager = socket_address(place.address, kControlPort);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&manager), sizeof(manager)) != 0)
    throw_errno(fmt::format("connect {} to the aggregation manager at {}", user, place.text()));
  return socket;
}

Descriptor connect_node(const ManagerPlace& place, const std::string& name) {
  Descriptor socket = connect_locally(place, "node " + name);
  watch_peer(socket.get());
  const nlohmann::json hello = {{"type", "node"}, {"switch", name}};
  if (!write_all(socket.get(), hello.dump() + "\n"))
    throw_errno(fmt::format("register node {} with the aggregation manager", name));
  return socket;
}

void add_bridge_address(netns::Fabric& fabric, const std::string& name, const topology::Interface& bridge) {
  fabric.call(name, [&] {
    const int index = static_cast<int>(if_nametoindex(bridge.name.c_str()));
    netns::Netlink netlink;
    netlink.add(netns::up_request(kLoopbackIndex, true, name + ": lo"));
    netlink.add(netns::address_request(index, bridge.address, bridge.prefix_length, name + ": " + bridge.name));
    netlink.flush();
  });
}

pid_t start(netns::Fabric& fabric, const std::string& node, const std::vector<std::string>& argv,
            const std::vector<Descriptor>& passed) {
  const Descriptor null_device(open("/dev/null", O_RDWR | O_CLOEXEC));
  netns::Command command;
  command.argv = argv;
  command.stdin_fd = command.stdout_fd = null_device.get();
  for (std::size_t i = 0; i < passed.size(); ++i)
    command.descriptors.push_back({passed[i].get(), kFirstPassed + static_cast<int>(i)});
  return fabric.spawn(node, command);
}

}  // namespace

std::string ManagerPlace::text() const { return fmt::format("{}:{}", address.text(), kControlPort); }

ManagerPlace manager_place(const Trees& trees) {
  const topology::Graph& graph = trees.graph();
  if (trees.all().empty()) return {graph.hosts.front().name, graph.hosts.front().interfaces.front().address};
  const std::vector<std::size_t>& switches = trees.all().front().switches;
  for (const std::size_t index : switches)
    if (const auto bridge = trees.bridge_address(index)) return {graph.switches[index].name, bridge->address};
  // A router above the leaves has no address that all hosts have a route to.
  for (const topology::Link& link : graph.links) {
    for (std::size_t end = 0; end < 2; ++end) {
      const topology::LinkEnd& near = link.ends[end];
      if (near.node == topology::LinkEnd::Node::kSwitch && link.ends[1 - end].node == topology::LinkEnd::Node::kHost &&
          std::find(switches.begin(), switches.end(), near.index) != switches.end())
        return {graph.switches[near.index].name, graph.interface(near).address};
    }
  }
  throw std::logic_error("reduction: a tree without hosts");
}

Processes::Processes(netns::Fabric& fabric, const std::string& program, const std::string& specification) {
  const Trees trees(fabric.graph());
  const ManagerPlace manager = manager_place(trees);
  std::vector<std::size_t> switches;
  for (const Tree& tree : trees.all()) switches.insert(switches.end(), tree.switches.begin(), tree.switches.end());
  for (const std::size_t index : switches)
    if (const auto bridge = trees.bridge_address(index))
      add_bridge_address(fabric, fabric.graph().switches[index].name, *bridge);

  std::vector<Descriptor> listener(1);
  fabric.call(manager.node, [&] { listener[0] = listen_at(manager); });
  processes_.push_back(start(fabric, manager.node, {program, "manager", specification}, listener));
  for (const std::size_t index : switches) {
    const std::string& name = fabric.graph().switches[index].name;
    std::vector<Descriptor> passed(1);
    fabric.call(manager.node, [&] { passed[0] = connect_node(manager, name); });
    fabric.call(name, [&] {
      for (const Ipv4Address address : trees.addresses(index))
        passed.push_back(bound_socket(SOCK_DGRAM, address, kDataPort));
    });
    processes_.push_back(start(fabric, name, {program, "node", std::to_string(passed.size())}, passed));
  }
}

Processes::~Processes() {
  for (const pid_t process : processes_) kill(process, SIGKILL);
  for (const pid_t process : processes_) await_exit(process);
}

std::vector<NodeReport> read_reports(netns::Fabric& fabric) {
  const ManagerPlace place = manager_place(Trees(fabric.graph()));
  Descriptor manager;
  fabric.call(place.node, [&] { manager = connect_locally(place, "this process"); });
  if (!write_all(manager.get(), nlohmann::json{{"type", "report"}}.dump() + "\n"))
    throw_errno(fmt::format("ask the aggregation manager at {} for reports", place.text()));
  std::vector<NodeReport> reports;
  std::optional<std::uint64_t> expected;
  LineReader lines;
  const Nanoseconds deadline = now_ns() + kReportTimeout;
  while (!expected || reports.size() < *expected) {
    pollfd entry = {manager.get(), POLLIN, 0};
    const Nanoseconds rest = std::max<Nanoseconds>(deadline - now_ns(), 0);
    if (poll(&entry, 1, static_cast<int>(rest / 1'000'000)) <= 0) break;
    std::array<char, 16384> buffer;
    const ssize_t bytes = recv(manager.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (bytes <= 0 || !lines.add({buffer.data(), static_cast<std::size_t>(bytes)})) break;
    while (const std::optional<std::string> line = lines.next()) {
      const nlohmann::json message = nlohmann::json::parse(*line, nullptr, false);
      if (!expected && message.is_object())
        expected = integer_of(message, "nodes", 0, std::numeric_limits<std::uint32_t>::max());
      else if (std::optional<NodeReport> report = parse_report(message))
        reports.push_back(std::move(*report));
    }
  }
  if (!expected)
    throw std::runtime_error(
        fmt::format("the aggregation manager {} does not answer: restart the fabric", place.text()));
  std::vector<NodeReport> sorted;
  for (const topology::Switch& node : fabric.graph().switches)
    for (NodeReport& report : reports)
      if (report.switch_name == node.name) sorted.push_back(std::move(report));
  return sorted;
}

std::string aggregation_program() {
  namespace fs = std::filesystem;
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& candidate :
       {folder / "plugfest-aggregation", folder.parent_path() / "bin" / "plugfest-aggregation"})
    if (fs::exists(candidate)) return candidate.string();
  throw std::runtime_error(
      fmt::format("plugfest-aggregation is neither in {0} nor in {1}/bin: build or install it there", folder.string(),
                  folder.parent_path().string()));
}

}  // namespace plugfest::reduction
