// Exports only v12, which no NCCL before 2.30 looks up.
#include "conformance/mutants/ld/refusing_net.h"

MUTANT_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net("newest_version_only");
