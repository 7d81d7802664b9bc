// Has the name NULL before init.
#include "conformance/mutants/ld/refusing_net.h"

MUTANT_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net(nullptr);
