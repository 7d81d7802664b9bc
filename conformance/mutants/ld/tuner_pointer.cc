// Exports a pointer to its tuner instead of the tuner.
#include "conformance/mutants/ld/refusing_net.h"

namespace {

struct Tuner {
  const char* name;
  void* functions[3];
};
Tuner tuner = {"tuner_pointer", {}};

}  // namespace

MUTANT_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net("tuner_pointer");
MUTANT_EXPORT Tuner* ncclTunerPlugin_v4;
Tuner* ncclTunerPlugin_v4 = &tuner;
