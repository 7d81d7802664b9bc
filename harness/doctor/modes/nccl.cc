// Mode nccl: NCCL's built-in transports, NCCL itself, and requirements of programs that use it.
#include <fmt/format.h>

#include "harness/doctor/modes/modes.h"
#include "harness/plugin/nccl.h"

namespace plugfest::doctor {
namespace {

/// The one release that plugfest nccl runs.
constexpr int kNcclOfRuns = 22809;

Finding library(const NcclTrial& trial) {
  Finding it{.name = "libnccl.so.2"};
  if (trial.path.empty()) {
    it.state = State::kBad;
    it.text = "not found in $NCCL_LIBRARY, the dynamic linker's folders or CUDA's";
    it.mend = plugin::kFetchNccl;
  } else if (trial.version == 0) {
    it.state = State::kBad;
    it.text = fmt::format("{}: {}", trial.path, trial.problem);
    it.mend = plugin::kFetchNccl;
  } else if (trial.version / 100 != plugin::kNcclOfTransports) {
    it.state = State::kBad;
    it.text = fmt::format("{} is NCCL {}: nccl:IB and nccl:Socket need 2.28, plugfest nccl needs 2.28.9", trial.path,
                          plugin::nccl_version_text(trial.version));
    it.mend = plugin::kFetchNccl;
  } else if (trial.version != kNcclOfRuns) {
    it.state = State::kWarning;
    it.text = fmt::format("{} is NCCL {}: enough for nccl:IB and nccl:Socket; plugfest nccl needs 2.28.9", trial.path,
                          plugin::nccl_version_text(trial.version));
    it.mend = plugin::kFetchNccl;
  } else {
    it.text = fmt::format("{}, NCCL {}", trial.path, plugin::nccl_version_text(trial.version));
  }
  return it;
}

Finding driver(const CudaTrial& trial) {
  Finding it{.name = "CUDA driver", .state = State::kNote};
  if (!trial.library) {
    it.text = "none; plugfest needs none, programs that call NCCL need one";
  } else if (trial.devices == 0) {
    it.text = fmt::format("libcuda.so.1 finds no usable GPU{}",
                          trial.problem.empty() ? "" : fmt::format(" ({})", trial.problem));
  } else {
    it.state = State::kGood;
    it.text = fmt::format("CUDA {}.{}, {} GPU{}", trial.version / 1000, trial.version % 1000 / 10, trial.devices,
                          trial.devices == 1 ? "" : "s");
  }
  return it;
}

}  // namespace

std::vector<Finding> examine_nccl(const Machine& machine) {
  const CudaTrial cuda = machine.trials().cuda();
  std::vector<Finding> findings = {library(machine.trials().nccl()), driver(cuda)};
  if (cuda.devices > 0) {
    const bool peer = machine.exists("/sys/module/nvidia_peermem") || machine.exists("/sys/module/nv_peer_mem");
    findings.push_back({.name = "GPUDirect",
                        .state = peer ? State::kGood : State::kNote,
                        .text = peer ? "nvidia_peermem is loaded" : "nvidia_peermem is not loaded",
                        .mend = peer ? "" : "sudo modprobe nvidia_peermem"});
  }
  return findings;
}

}  // namespace plugfest::doctor
