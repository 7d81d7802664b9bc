// Exports the struct under a mangled C++ name.
#include "conformance/mutants/ld/refusing_net.h"

namespace vendor {
__attribute__((visibility("default"))) plugfest::abi::v12::Net ncclNetPlugin_v12 =
    plugfest::mutants::ld::refusing_net("cxx_name");
}
