// Builds the fabric and names the variables.
#include "conformance/rules/ground.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "conformance/rules/runner.h"
#include "fabric/loopback/interfaces.h"
#include "fabric/loopback/layout.h"
#include "fabric/netns/build.h"
#include "fabric/roce/faults/file.h"
#include "fabric/roce/verbs/device/sysfs_view.h"
#include "harness/plugin/nccl/nccl_builtin.h"

namespace plugfest::conformance {
namespace {

/// Ranks as plain processes of this machine, each told the interfaces of its host.
class LoopbackLauncher : public control::Launcher {
 public:
  explicit LoopbackLauncher(loopback::Layout layout) : layout_(std::move(layout)) {}

  pid_t launch(const control::LaunchRequest& request) override {
    control::LaunchRequest told = request;
    const std::string host = request.rank.substr(0, request.rank.rfind('.'));
    told.environment.emplace_back(loopback::kVariable, layout_.interfaces_of(host));
    told.environment.emplace_back("LD_PRELOAD", library_folder() + "/libplugfest-loopback.so");
    return plain_.launch(told);
  }

 private:
  loopback::Layout layout_;
  control::PlainLauncher plain_;
};

std::vector<std::string> active_devices() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    std::string state;
    std::getline(std::ifstream(device.path() / "ports" / "1" / "state"), state);
    if (state.find("ACTIVE") != std::string::npos) names.push_back(device.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The NIC at the far end of a link makes the delay of what arrives. Where a switch is at the far end, the host's own
// NIC makes it both ways.
void write_delay(const topology::Link& link, const topology::Interface& interface) {
  if (link.delay_us == 0) return;
  const bool between_hosts =
      link.ends[0].node == topology::LinkEnd::Node::kHost && link.ends[1].node == topology::LinkEnd::Node::kHost;
  roce::FaultPlan plan;
  plan.direction = between_hosts ? roce::Direction::kIn : roce::Direction::kBoth;
  plan.delay = Nanoseconds{link.delay_us} * 1000;
  roce::write_fault_file("/sys/class/infiniband/roce_" + interface.name + "/link", {&plan, 1});
}

}  // namespace

std::string library_folder() {
  return (std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "lib").string();
}

Ground::Ground(topology::Graph graph, bool out_of_band, const rxe::Rxe* rxe)
    : fabric_(std::make_unique<netns::Fabric>(graph, fabric_options(graph, out_of_band, rxe))),
      launcher_(std::make_unique<control::FabricLauncher>(*fabric_)),
      disjoint_paths_(conformance::disjoint_paths(fabric_->graph())),
      common_interface_(out_of_band ? "oob0" : "eth") {
  if (rxe == nullptr) {
    environment_ = nic_environment();
    processes_ = std::make_unique<faults::RanksByHost>(*launcher_);
    injector_ = std::make_unique<faults::Injector>(*fabric_, *processes_);
  }
  if (rxe != nullptr && rxe->layout() == rxe::Layout::kFlat) common_interface_ = "lo";
}

Ground Ground::of_this_machine() {
  const std::vector<std::string> devices = active_devices();
  if (devices.empty()) {
    throw std::runtime_error(
        "--nic system: this machine has no RDMA device whose port is active: ibv_devinfo lists what there is; --nic "
        "roce needs none");
  }
  Ground ground;
  ground.launcher_ = std::make_unique<control::PlainLauncher>();
  ground.disjoint_paths_ = {{"near." + devices.front(), "far." + devices[devices.size() > 1 ? 1 : 0]}};
  return ground;
}

Ground::Ground(topology::Graph graph, bool out_of_band, netns::BuiltFabric&& built)
    : fabric_(std::make_unique<netns::Fabric>(graph, fabric_options(graph, out_of_band), std::move(built))),
      launcher_(std::make_unique<control::FabricLauncher>(*fabric_)),
      processes_(std::make_unique<faults::RanksByHost>(*launcher_)),
      injector_(std::make_unique<faults::Injector>(*fabric_, *processes_)),
      disjoint_paths_(conformance::disjoint_paths(fabric_->graph())),
      environment_(nic_environment()),
      common_interface_(out_of_band ? "oob0" : "eth") {}

Ground Ground::on_loopback(topology::Graph graph) {
  Ground ground;
  ground.environment_ = nic_environment();
  ground.common_interface_ = "eth";
  ground.disjoint_paths_ = conformance::disjoint_paths(graph);
  ground.launcher_ = std::make_unique<LoopbackLauncher>(loopback::Layout(std::move(graph)));
  return ground;
}

control::Launcher& Ground::launcher() {
  if (processes_) return *processes_;
  return *launcher_;
}

netns::Options Ground::fabric_options(const topology::Graph& graph, bool out_of_band, const rxe::Rxe* rxe) {
  netns::Options options;
  if (rxe == nullptr) {
    options.prepare_host = [graph](const topology::Host& host) {
      roce::write_sysfs_view_of_this_host("/sys/class/infiniband");
      for (const topology::Interface& interface : host.interfaces) write_delay(graph.links[interface.link], interface);
    };
  } else {
    options.prepare_host = [rxe](const topology::Host& host) { rxe->prepare_host(host); };
    options.flat = rxe->layout() == rxe::Layout::kFlat;
  }
  options.out_of_band = out_of_band && !options.flat;
  return options;
}

Environment Ground::nic_environment() {
  std::string folders = library_folder() + "/roce";
  if (const char* already = std::getenv("LD_LIBRARY_PATH"); already != nullptr && *already != '\0') {
    folders += std::string(":") + already;
  }
  return {{"LD_LIBRARY_PATH", folders}};
}

control::Subject Ground::subject(const std::string& plugin, int api) const {
  control::Subject subject{.plugin = plugin, .api = api, .environment = environment_};
  if (plugin::is_builtin(plugin)) {
    // IB listens on one address for all its devices, which every host must reach; Socket's devices are the interfaces.
    const bool sockets = plugin.size() > 5 && std::tolower(static_cast<unsigned char>(plugin[5])) == 's';
    if (!common_interface_.empty()) {
      const bool apart = sockets && common_interface_ == "oob0";
      subject.environment.emplace_back("NCCL_SOCKET_IFNAME", apart ? "eth" : common_interface_);
    }
    subject.environment.emplace_back("NCCL_IB_TIMEOUT", "14");  // else a dead peer is noticed after 34 s
    // Messages about a broken connection look up the peer's host name; no name server answers in a host.
    subject.environment.emplace_back("RES_OPTIONS", "timeout:1 attempts:1");
  }
  return subject;
}

}  // namespace plugfest::conformance
