// Exports only v4 and v5, which NCCL 2.26 and later do not look up.
#include "conformance/mutants/ld/refusing_net.h"

MUTANT_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v4;
MUTANT_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v5;
plugfest::abi::v12::Net ncclNetPlugin_v4 = plugfest::mutants::ld::refusing_net("old_versions");
plugfest::abi::v12::Net ncclNetPlugin_v5 = plugfest::mutants::ld::refusing_net("old_versions");
