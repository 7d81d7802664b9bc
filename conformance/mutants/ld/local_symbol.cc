// Exports nothing: its version script (local_symbol.map) makes all symbols local.
#include "conformance/mutants/ld/refusing_net.h"

MUTANT_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net("local_symbol");
