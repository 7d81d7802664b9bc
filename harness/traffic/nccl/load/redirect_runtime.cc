#include "harness/traffic/nccl/load/redirect_runtime.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <unordered_map>

#include "harness/plugin/inspect.h"
#include "harness/plugin/nccl.h"
#include "harness/traffic/nccl/cuda/runtime.h"
#include "harness/traffic/nccl/cuda/trap.h"

namespace plugfest::nccl {

void redirect_runtime(const std::map<std::string, void*>& functions) {
  std::unordered_map<std::string, const void*> targets;
  for (const cuda::StandIn& stand_in : cuda::stand_ins()) targets[stand_in.name] = stand_in.function;
  for (const auto& [name, function] : functions) {
    const auto found = targets.find(name);
    if (plugin::redirect(function, found == targets.end() ? make_trap(name) : found->second)) continue;
    throw plugin::LoadError(fmt::format("nccl: {} cannot be redirected: {}", name, std::strerror(errno)));
  }
}

}  // namespace plugfest::nccl
