// A tuner plugin, v6, v4 and v2, that prefers LL for messages up to 64 KiB, and rings with the simple protocol for
// larger ones.
#include <cstdint>

#include "harness/abi/tuner.h"

namespace {

using plugfest::abi::Result;
namespace abi = plugfest::abi;

constexpr int kRing = 1, kLl = 0, kSimple = 2;
constexpr std::size_t kMaxForLl = 64 << 10;

struct Communicator {
  std::size_t ranks = 0;
};

Result init(std::size_t ranks, std::size_t, abi::Logger, void** context) {
  *context = new Communicator{ranks};
  return Result::kSuccess;
}
Result init_v6(void** context, std::uint64_t, std::size_t ranks, std::size_t nodes, abi::Logger logger,
               abi::NvlDomainInfo*, abi::TunerConstants* constants) {
  constants->baseLatencies[kRing][kSimple] *= 2;
  return init(ranks, nodes, logger, context);
}

Result choose(void* context, int, std::size_t bytes, int, float** table, int algorithms, int protocols, int,
              int* channels) {
  auto* const costs = reinterpret_cast<float*>(table);
  const int protocol = bytes <= kMaxForLl ? kLl : kSimple;
  if (kRing >= algorithms || protocol >= protocols) return Result::kSuccess;
  float& cost = costs[kRing * protocols + protocol];
  if (cost != abi::kTunerIgnore) cost = 0;
  *channels = static_cast<Communicator*>(context)->ranks > 8 ? 4 : 2;
  return Result::kSuccess;
}
Result choose_v2(void*, int, std::size_t bytes, int, int, int, int* algorithm, int* protocol, int*) {
  *algorithm = kRing;
  *protocol = bytes <= kMaxForLl ? kLl : kSimple;
  return Result::kSuccess;
}
Result choose_chunk(void*, int, std::size_t bytes, int, int, int channels, std::size_t* size) {
  const std::size_t even = bytes / static_cast<std::size_t>(channels);
  if (even != 0 && even < *size) *size = even;
  return Result::kSuccess;
}

Result finalize(void* context) {
  delete static_cast<Communicator*>(context);
  return Result::kSuccess;
}

}  // namespace

extern "C" {
extern abi::TunerV2 ncclTunerPlugin_v2;
extern abi::TunerV4 ncclTunerPlugin_v4;
extern abi::TunerV6 ncclTunerPlugin_v6;
abi::TunerV2 ncclTunerPlugin_v2 = {"TunerToy", init, choose_v2, finalize};
abi::TunerV4 ncclTunerPlugin_v4 = {"TunerToy", init, choose, finalize};
abi::TunerV6 ncclTunerPlugin_v6 = {"TunerToy", init_v6, choose, finalize, choose_chunk};
}
