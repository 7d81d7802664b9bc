// Needs a library that is not found when it is loaded.
#include "conformance/mutants/ld/refusing_net.h"

extern "C" void something_absent();
MUTANT_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net("missing_dependency");
MUTANT_EXPORT void use_it() { something_absent(); }
