#include <array>

#include "harness/traffic/nccl/cuda/runtime.h"

namespace plugfest::nccl::cuda {

std::span<const StandIn> stand_ins() {
  static const std::array table = {
#define FUNCTION(name, ...) StandIn{#name, reinterpret_cast<const void*>(&::name)},
#include "harness/traffic/nccl/cuda/functions.def"
#undef FUNCTION
  };
  return table;
}

}  // namespace plugfest::nccl::cuda
