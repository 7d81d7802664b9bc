// Depends on a library that the loader does not find.
#include "conformance/mutants/ld/refusing_net.h"

extern "C" void plugfest_absent();
MUTANT_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net("missing_dependency");
MUTANT_EXPORT void use_it() { plugfest_absent(); }
