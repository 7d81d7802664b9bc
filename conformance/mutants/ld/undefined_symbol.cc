// Uses a function of NCCL, which exports none to plugins.
#include "conformance/mutants/ld/refusing_net.h"

extern "C" void ncclDebugLogOfCore();
MUTANT_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net("undefined_symbol");
MUTANT_EXPORT void log_something() { ncclDebugLogOfCore(); }
