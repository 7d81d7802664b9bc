#include "harness/bed/test_bed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>

#include "fabric/roce/capture/packet_log.h"
#include "fabric/roce/counters/counters.h"
#include "harness/bed/reduction.h"
#include "harness/plugin/nccl.h"
#include "harness/plugin/resolve.h"

namespace plugfest::bed {

RankGroup::RankGroup(const RankPath& path) : ranks{path.near, path.far}, interfaces{{"", path.near}, {path.far, ""}} {}

std::optional<RankGroup> RankGroup::complete(std::size_t count) const {
  for (std::size_t first = 0; first + count <= ranks.size(); ++first) {
    std::vector<std::size_t> chosen;
    for (std::size_t rank = first; rank < ranks.size() && chosen.size() < count; ++rank) {
      const auto reaches = [&](std::size_t other) { return !interfaces[rank][other].empty(); };
      if (std::all_of(chosen.begin(), chosen.end(), reaches)) chosen.push_back(rank);
    }
    if (chosen.size() < count) continue;
    RankGroup group;
    for (const std::size_t rank : chosen) {
      group.ranks.push_back(ranks[rank]);
      group.interfaces.emplace_back();
      for (const std::size_t other : chosen) group.interfaces.back().push_back(interfaces[rank][other]);
    }
    return group;
  }
  return std::nullopt;
}

RankPath parse_path(const std::string& text, const topology::Graph& graph) {
  std::set<std::string> names;
  for (const topology::Path& path : graph.paths())
    names.insert({graph.interface_name(path.from), graph.interface_name(path.to)});
  const std::size_t comma = std::min(text.find(','), text.size());
  const RankPath path{text.substr(0, comma), text.substr(std::min(comma + 1, text.size()))};
  if (names.count(path.near) == 0 || names.count(path.far) == 0 ||
      control::host_of(path.near) == control::host_of(path.far)) {
    throw std::runtime_error(
        fmt::format("--path \"{}\": expected interfaces of two hosts of {}, separated by a comma: {}", text, graph.name,
                    fmt::join(names, ", ")));
  }
  return path;
}

RankGroup ranks_of_hosts(const topology::Graph& graph) {
  RankGroup group;
  for (const topology::Host& host : graph.hosts) group.ranks.push_back(host.name);
  group.interfaces.assign(graph.hosts.size(), std::vector<std::string>(graph.hosts.size()));
  for (const topology::Path& path : graph.paths()) {
    std::string& forth = group.interfaces[path.from.host][path.to.host];
    if (!forth.empty()) continue;
    forth = graph.interface_name(path.from);
    group.interfaces[path.to.host][path.from.host] = graph.interface_name(path.to);
  }
  return group;
}

std::vector<RankPath> disjoint_paths(const topology::Graph& graph) {
  std::vector<RankPath> paths;
  std::set<topology::HostInterface> used;
  for (const topology::Path& path : graph.paths()) {
    if (used.count(path.from) != 0 || used.count(path.to) != 0) continue;
    used.insert({path.from, path.to});
    paths.push_back({graph.interface_name(path.from), graph.interface_name(path.to)});
  }
  return paths;
}

std::string library_folder() {
  return (std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "lib").string();
}

void search_first_in(const std::string& name, control::Environment& environment) {
  constexpr const char* kVariable = "LD_LIBRARY_PATH";
  std::string folders = library_folder() + "/" + name;
  if (folders.find_first_of(":;") != std::string::npos) {
    throw std::runtime_error(fmt::format(
        "{}: LD_LIBRARY_PATH cannot express a path with : or ;: build plugfest in another folder", folders));
  }
  auto variable = std::find_if(environment.begin(), environment.end(),
                               [](const auto& variable) { return variable.first == kVariable; });
  if (variable == environment.end()) {
    const char* const inherited = std::getenv(kVariable);
    variable = environment.emplace(variable, kVariable, inherited == nullptr ? "" : inherited);
  }
  // An empty entry would mean the current folder.
  const std::string others = variable->second.value_or("");
  variable->second = others.empty() ? folders : folders + ":" + others;
}

TestBed::TestBed(TestBedParts parts) : parts_(std::move(parts)), hosts_(ranks_of_hosts(parts_.graph)) {
  if (parts_.paths.empty()) parts_.paths = disjoint_paths(parts_.graph);
  if (!parts_.launcher) parts_.launcher = std::make_unique<control::FabricLauncher>(*parts_.fabric);
  if (parts_.supports_faults) {
    ranks_by_host_ = std::make_unique<faults::RanksByHost>(*parts_.launcher);
    injector_ = std::make_unique<faults::Injector>(*parts_.fabric, *ranks_by_host_);
  }
}

std::set<std::string> TestBed::interfaces() const {
  std::set<std::string> all;
  for (const RankPath& path : parts_.paths) all.insert({path.near, path.far});
  for (const std::vector<std::string>& of_rank : hosts_.interfaces) all.insert(of_rank.begin(), of_rank.end());
  all.erase("");
  return all;
}

control::Launcher& TestBed::launcher() {
  if (ranks_by_host_) return *ranks_by_host_;
  return *parts_.launcher;
}

void TestBed::start_reduction() {
  require_reduction(parts_.graph, "reduction");
  reduction_ = bed::start_reduction(*parts_.fabric, parts_.graph.name);
  use_reduction();
}

void TestBed::use_reduction() { add_reduction(parts_.graph, parts_.environment); }

control::Subject TestBed::subject(const std::string& plugin, int api, plugin::InterfaceKind interface) const {
  control::Subject subject{.plugin = plugin, .api = api, .interface = interface, .environment = parts_.environment};
  if (!plugin::is_builtin(plugin)) {
    for (const auto& [name, value] : plugin::sanitizer_environment(plugin))
      subject.environment.emplace_back(name, value);
    return subject;
  }
  if (!parts_.common_interface.empty()) {
    // IB listens on one address for all its devices, which every host must reach. The devices of Socket are interfaces,
    // so it gets those with a NIC.
    const bool sockets = plugin.size() > 5 && std::tolower(static_cast<unsigned char>(plugin[5])) == 's';
    const bool needs_nic_interfaces = sockets && parts_.common_interface == "oob0";
    subject.environment.emplace_back("NCCL_SOCKET_IFNAME", needs_nic_interfaces ? "eth" : parts_.common_interface);
  }
  // When a connection breaks, the transport looks up the peer's host name, and hosts have no name server.
  subject.environment.emplace_back("RES_OPTIONS", "timeout:1 attempts:1");
  return subject;
}

void report_lost_peers_soon(control::Environment& environment) {
  if (std::getenv("NCCL_IB_TIMEOUT") == nullptr) environment.emplace_back("NCCL_IB_TIMEOUT", "14");
}

VerbsLibrary verbs_library(control::Session& session, const TestBed& bed) {
  control::Lease lease = session.lease();
  const std::vector<std::string> mapped = lease.rank(bed.paths().front().near).process().libraries;
  lease.release(true);
  const auto found = std::find_if(mapped.begin(), mapped.end(), [](const std::string& file) {
    return file.find("/libibverbs.so") != std::string::npos;
  });
  if (found == mapped.end()) return {};
  std::error_code error;
  const std::filesystem::path nic = std::filesystem::path(library_folder()) / "roce";
  return {*found, std::filesystem::equivalent(std::filesystem::path(*found).parent_path(), nic, error)};
}

std::uint64_t sent_packets(TestBed& bed) {
  std::uint64_t sum = 0;
  if (!bed.has_fabric()) return sum;
  for (const topology::Host& host : bed.fabric().graph().hosts) {
    bed.fabric().call(host.name, [&] {
      for (const roce::DeviceCounters& device : roce::read_counters()) sum += device.counters.sent_packets;
    });
  }
  return sum;
}

void capture_packets(TestBed& bed, const std::filesystem::path& file) {
  for (const std::string& interface : bed.interfaces()) {
    const std::size_t dot = interface.rfind('.');
    bed.fabric().call(interface.substr(0, dot),
                      [&] { roce::set_device_log("/sys/class/infiniband/roce_" + interface.substr(dot + 1), file); });
  }
}

}  // namespace plugfest::bed
