// The NIC kind `loopback`: the NIC in user space on addresses 127.x.y.z, without namespaces.
#include <string>
#include <utility>

#include "fabric/loopback/interfaces.h"
#include "fabric/loopback/layout.h"
#include "fabric/netns/sandbox/sandbox.h"
#include "harness/testbed/factories.h"
#include "harness/testbed/library_folder.h"
#include "harness/testbed/roce.h"

namespace plugfest::testbed {
namespace {

/// Starts ranks as plain processes of this machine. Each gets the interfaces of its host in a variable, and a library
/// that shows it these interfaces.
class LoopbackLauncher final : public control::Launcher {
 public:
  explicit LoopbackLauncher(const topology::Graph& graph) : layout_(graph) {}

  pid_t launch(const control::LaunchRequest& request) override {
    control::LaunchRequest on_loopback = request;
    const std::string host = request.rank.substr(0, request.rank.rfind('.'));
    on_loopback.environment.emplace_back(loopback::kVariable, layout_.interfaces_of(host));
    on_loopback.environment.emplace_back("LD_PRELOAD", library_folder() + "/libplugfest-loopback.so");
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
    parts.paths = disjoint_paths(graph);
    parts.environment = roce_environment();
    parts.common_interface = "eth";
    return TestBed(std::move(parts));
  }
};

}  // namespace

std::unique_ptr<NicKind> make_loopback(const NicOptions&) { return std::make_unique<Loopback>(); }

}  // namespace plugfest::testbed
