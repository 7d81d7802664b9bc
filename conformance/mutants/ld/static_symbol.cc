// Exports nothing: the struct is static.
#include "conformance/mutants/ld/refusing_net.h"

[[gnu::used]] static plugfest::abi::v12::Net ncclNetPlugin_v12 = plugfest::mutants::ld::refusing_net("static_symbol");
