// The NIC kinds in user space: roce and loopback.
#include <cstdlib>
#include <string>
#include <utility>

#include "fabric/loopback/interfaces.h"
#include "fabric/loopback/layout.h"
#include "fabric/netns/sandbox.h"
#include "fabric/roce/faults/fault_file_guard.h"
#include "fabric/roce/faults/plan.h"
#include "fabric/roce/verbs/device/sysfs_view.h"
#include "harness/bed/nic_kind.h"
#include "harness/control/launcher.h"

namespace plugfest::bed {
namespace {

// Between hosts, the receiving NIC of a link delays the packets. If one end of the link is a switch, the host's own NIC
// delays both directions.
void write_delay(const topology::Link& link, const topology::Interface& interface) {
  if (link.delay_us == 0) return;
  const bool between_hosts =
      link.ends[0].node == topology::LinkEnd::Node::kHost && link.ends[1].node == topology::LinkEnd::Node::kHost;
  roce::FaultPlan plan;
  plan.direction = between_hosts ? roce::Direction::kIn : roce::Direction::kBoth;
  plan.delay = Nanoseconds{link.delay_us} * 1000;
  roce::write_fault_file("/sys/class/infiniband/roce_" + interface.name + "/link", {&plan, 1});
}

TestBed on_fabric(std::unique_ptr<netns::Fabric> fabric, bool out_of_band) {
  TestBedParts parts;
  parts.graph = fabric->graph();
  parts.fabric = std::move(fabric);
  parts.environment = roce_environment();
  parts.common_interface = out_of_band ? "oob0" : "eth";
  parts.supports_faults = true;
  return TestBed(std::move(parts));
}

class Roce final : public NicKind {
 public:
  std::string name() const override { return "roce"; }
  std::string description() const override { return "the user-space NIC"; }
  NicSupport support() const override { return {.background_fabric = true, .faults = true, .reduction = true}; }
  std::optional<int> enter() override { return netns::enter_sandbox(); }
  TestBed build(const topology::Graph& graph, bool out_of_band) override { return roce_test_bed(graph, out_of_band); }
};

// Appends `library` to LD_PRELOAD of `environment`, or else of the user. LD_LIBRARY_PATH has its folder, since
// LD_PRELOAD cannot contain a path with spaces.
void add_preload(const char* library, control::Environment& environment) {
  const char* inherited = std::getenv("LD_PRELOAD");
  std::string others = inherited == nullptr ? "" : inherited;
  for (const auto& [name, value] : environment)
    if (name == "LD_PRELOAD") others = value.value_or("");
  environment.emplace_back("LD_PRELOAD", others + (others.empty() ? "" : ":") + library);
}

// Starts ranks as plain processes of this machine. Each gets the interfaces of its host in a variable, and a library
// that presents only these interfaces.
class LoopbackLauncher final : public control::Launcher {
 public:
  explicit LoopbackLauncher(const topology::Graph& graph) : layout_(graph) {}

  pid_t launch(const control::LaunchRequest& request) override {
    control::LaunchRequest on_loopback = request;
    const std::string host = control::host_of(request.rank);
    on_loopback.environment.emplace_back(loopback::kVariable, layout_.interfaces_of(host));
    add_preload("libplugfest-loopback.so", on_loopback.environment);
    return plain_.launch(on_loopback);
  }

 private:
  loopback::Layout layout_;
  control::PlainLauncher plain_;
};

// `loopback`: the user-space NIC on addresses 127.x.y.z, without namespaces.
class Loopback final : public NicKind {
 public:
  std::string name() const override { return "loopback"; }
  std::string description() const override { return "the same NIC on 127.x.y.z, for machines that forbid namespaces"; }
  NicSupport support() const override { return {.out_of_band = false}; }

  void check_topology(const topology::Graph& graph) const override { const loopback::Layout possible(graph); }

  std::optional<int> enter() override { return netns::contain_processes(); }

  TestBed build(const topology::Graph& graph, bool) override {
    TestBedParts parts;
    parts.launcher = std::make_unique<LoopbackLauncher>(graph);
    parts.graph = graph;
    parts.environment = roce_environment();
    parts.common_interface = "eth";
    return TestBed(std::move(parts));
  }
};

}  // namespace

netns::Options roce_fabric_options(const topology::Graph& graph, bool out_of_band) {
  netns::Options options;
  // Lives as long as the fabric, which keeps its options.
  const auto guard = std::make_shared<roce::FaultFileGuard>();
  options.prepare_host = [graph, guard](const topology::Host& host) {
    roce::verbs::show_nics_of_this_host();
    guard->add("/sys/class/infiniband");
    for (const topology::Interface& interface : host.interfaces) write_delay(graph.links[interface.link], interface);
  };
  options.out_of_band = out_of_band;
  return options;
}

control::Environment roce_environment() {
  control::Environment environment;
  search_first_in("roce", environment);
  return environment;
}

control::Environment roce_program_environment() {
  control::Environment environment = roce_environment();
  add_preload("libplugfest-rdmacm.so", environment);
  return environment;
}

TestBed roce_test_bed(const topology::Graph& graph, bool out_of_band) {
  return on_fabric(std::make_unique<netns::Fabric>(graph, roce_fabric_options(graph, out_of_band)), out_of_band);
}

TestBed roce_test_bed(const topology::Graph& graph, bool out_of_band, netns::BuiltFabric&& built) {
  return on_fabric(std::make_unique<netns::Fabric>(graph, roce_fabric_options(graph, out_of_band), std::move(built)),
                   out_of_band);
}

std::unique_ptr<NicKind> make_roce(const NicOptions&) { return std::make_unique<Roce>(); }

std::unique_ptr<NicKind> make_loopback(const NicOptions&) { return std::make_unique<Loopback>(); }

}  // namespace plugfest::bed
