// Exports ncclNet_v8, a name that NCCL's documentation once used, instead of ncclNetPlugin_v8.
#include "conformance/mutants/ld/refusing_net.h"
#include "harness/abi/net.h"

MUTANT_EXPORT plugfest::abi::v8::Net ncclNet_v8;
plugfest::abi::v8::Net ncclNet_v8 = plugfest::mutants::ld::refusing_net<plugfest::abi::v8::Net>("short_name");
