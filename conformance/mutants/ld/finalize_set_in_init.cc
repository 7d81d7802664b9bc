// Has no finalize before init.
#include "conformance/mutants/ld/refusing_net.h"

namespace {

constexpr plugfest::abi::v12::Net without_finalize() {
  plugfest::abi::v12::Net net = plugfest::mutants::ld::refusing_net("finalize_set_in_init");
  net.finalize = nullptr;
  return net;
}

}  // namespace

MUTANT_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = without_finalize();
