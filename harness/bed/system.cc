// The NIC kind `system`: the RDMA devices of this machine, without a fabric.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "fabric/netns/sandbox.h"
#include "harness/bed/factories.h"

namespace plugfest::bed {
namespace {

/// Names of the RDMA devices whose first port is active, sorted.
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

class System final : public NicKind {
 public:
  std::string name() const override { return "system"; }
  std::string description() const override { return "the RDMA devices of this machine, without a fabric"; }
  std::optional<int> enter() override { return netns::contain_processes(); }
  std::string layout() const override { return "ranks on this machine"; }

  /// The ranks "near" and "far" both run on this machine, on two different devices if it has two.
  TestBed build(const topology::Graph&, bool) override {
    const std::vector<std::string> devices = active_devices();
    if (devices.empty()) {
      throw std::runtime_error(
          "--nic system: this machine has no RDMA device whose port is active: ibv_devinfo lists its devices; --nic "
          "roce needs none");
    }
    TestBedParts parts;
    parts.launcher = std::make_unique<control::PlainLauncher>();
    parts.paths = {{"near." + devices.front(), "far." + devices[devices.size() > 1 ? 1 : 0]}};
    return TestBed(std::move(parts));
  }
};

}  // namespace

std::unique_ptr<NicKind> make_system(const NicOptions&) { return std::make_unique<System>(); }

}  // namespace plugfest::bed
