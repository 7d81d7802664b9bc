// Not a mutant: needs libcuda.so.1, for tests on machines without NVIDIA's driver.
#include "conformance/mutants/ld/refusing_net.h"

extern "C" int cuInit(unsigned flags);

MUTANT_EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net("needs_driver");
MUTANT_EXPORT int use_it() { return cuInit(0); }
