// Exports the struct of v10 as v12: NCCL reads finalize and setNetAttr behind its end.
#include "conformance/mutants/ld/refusing_net.h"
#include "harness/abi/net.h"

MUTANT_EXPORT plugfest::abi::v10::Net ncclNetPlugin_v12;
plugfest::abi::v10::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net<plugfest::abi::v10::Net>("wrong_size");
