// NVIDIA's NCCL: the transports in it, its loader, and what NCCL programs need beside it.
#include <fmt/format.h>

#include "harness/doctor/modes.h"

namespace plugfest::doctor {
namespace {

constexpr int kTransportsOf = 228;  // 2.28: the tables of its transports are known
constexpr int kLoaderOf = 22809;    // 2.28.9: the inside of its loader is known

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Finding library(const NcclTrial& trial) {
  Finding it{.name = "libnccl.so.2"};
  const char* const mend =
      "export NCCL_LIBRARY=…/libnccl.so.2   # of NCCL 2.28.9, as from pip download nvidia-nccl-cu12==2.28.9";
  if (trial.path.empty()) {
    it.state = State::kBad;
    it.text = "not found in NCCL_LIBRARY, the loader's folders, or CUDA's";
    it.mend = mend;
  } else if (trial.version == 0) {
    it.state = State::kBad;
    it.text = fmt::format("{}: {}", trial.path, trial.problem);
    it.mend = mend;
  } else if (trial.version / 100 != kTransportsOf) {
    it.state = State::kBad;
    it.text = fmt::format("{} is NCCL {}: nccl:IB, nccl:Socket are known in 2.28, --loader nccl in 2.28.9", trial.path,
                          version_text(trial.version));
    it.mend = mend;
  } else if (trial.version != kLoaderOf) {
    it.state = State::kWarning;
    it.text = fmt::format("{} is NCCL {}: enough for nccl:IB and nccl:Socket; --loader nccl takes 2.28.9", trial.path,
                          version_text(trial.version));
    it.mend = mend;
  } else {
    it.text = fmt::format("{}, NCCL {}", trial.path, version_text(trial.version));
  }
  return it;
}

Finding driver(const CudaTrial& trial) {
  Finding it{.name = "CUDA driver", .state = State::kNote};
  if (!trial.library) {
    it.text = "none, and none is needed here; programs of your own that call NCCL need one";
  } else if (trial.devices == 0) {
    it.text = fmt::format("libcuda.so.1 is there, and no GPU to use{}",
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
