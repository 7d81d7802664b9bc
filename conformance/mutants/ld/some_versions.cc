// Not a mutant: exports v8 and v11 and hides v9, for tests of the loader's choice of a version.
#include "conformance/mutants/ld/refusing_net.h"
#include "harness/abi/net.h"

MUTANT_EXPORT plugfest::abi::v8::Net ncclNetPlugin_v8;
extern "C" __attribute__((visibility("hidden"))) plugfest::abi::v9::Net ncclNetPlugin_v9;
MUTANT_EXPORT plugfest::abi::v11::Net ncclNetPlugin_v11;

using plugfest::mutants::ld::refusing_net;
plugfest::abi::v8::Net ncclNetPlugin_v8 = refusing_net<plugfest::abi::v8::Net>("some_versions");
plugfest::abi::v9::Net ncclNetPlugin_v9 = refusing_net<plugfest::abi::v9::Net>("some_versions");
plugfest::abi::v11::Net ncclNetPlugin_v11 = refusing_net<plugfest::abi::v11::Net>("some_versions");
