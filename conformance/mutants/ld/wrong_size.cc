// Exports v12 with the structure of v10: NCCL finds finalize and setNetAttr in whatever stands behind it.
#include "conformance/mutants/ld/refusing_net.h"
#include "harness/abi/net_v10.h"

MUTANT_EXPORT plugfest::abi::v10::Net ncclNetPlugin_v12;
plugfest::abi::v10::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net<plugfest::abi::v10::Net>("wrong_size");
