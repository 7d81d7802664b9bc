// The NIC kind `loopback`: the NIC in user space on addresses 127.x.y.z, without namespaces.
#include <cstdlib>
#include <string>
#include <utility>

#include "fabric/loopback/interfaces.h"
#include "fabric/loopback/layout.h"
#include "fabric/netns/sandbox.h"
#include "harness/bed/factories.h"
#include "harness/bed/roce.h"
#include "harness/control/process/launcher.h"

namespace plugfest::bed {
namespace {

/// The value of LD_PRELOAD: that of `environment` or of the user, then our library. LD_LIBRARY_PATH has its folder:
/// LD_PRELOAD has no way to write a path with spaces.
std::string preloads(const control::Environment& environment) {
  const char* inherited = std::getenv("LD_PRELOAD");
  std::string others = inherited == nullptr ? "" : inherited;
  for (const auto& [name, value] : environment) {
    if (name == "LD_PRELOAD") others = value.value_or("");
  }
  return others + (others.empty() ? "" : ":") + "libplugfest-loopback.so";
}

/// Starts ranks as plain processes of this machine. Each gets the interfaces of its host in a variable, and a library
/// that shows it these interfaces.
class LoopbackLauncher final : public control::Launcher {
 public:
  explicit LoopbackLauncher(const topology::Graph& graph) : layout_(graph) {}

  pid_t launch(const control::LaunchRequest& request) override {
    control::LaunchRequest on_loopback = request;
    const std::string host = control::host_of(request.rank);
    on_loopback.environment.emplace_back(loopback::kVariable, layout_.interfaces_of(host));
    on_loopback.environment.emplace_back("LD_PRELOAD", preloads(request.environment));
    return plain_.launch(on_loopback);
  }

 private:
  loopback::Layout layout_;
  control::PlainLauncher plain_;
};

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

std::unique_ptr<NicKind> make_loopback(const NicOptions&) { return std::make_unique<Loopback>(); }

}  // namespace plugfest::bed
