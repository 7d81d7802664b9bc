// Functions of the CUDA runtime without a stand-in, for programs: each names itself and ends the process.
#include <fmt/format.h>

#include "harness/traffic/nccl/cuda/refuse.h"

extern "C" {
#define NAME(name) \
  [[noreturn]] void name() { plugfest::nccl::refuse(#name ": no stand-in for this function of CUDA"); }
#include "harness/traffic/nccl/cuda/other_names.def"
#undef NAME
}
