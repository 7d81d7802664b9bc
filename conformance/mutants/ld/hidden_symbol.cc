// Exports nothing: the symbol has hidden visibility, as with -fvisibility=hidden.
#include "conformance/mutants/ld/refusing_net.h"

extern "C" __attribute__((visibility("hidden"))) plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net("hidden_symbol");
