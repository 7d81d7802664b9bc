// Exports a function that returns the struct instead of the struct.
#include "conformance/mutants/ld/refusing_net.h"

MUTANT_EXPORT const plugfest::abi::v12::Net* ncclNetPlugin_v12() {
  static const plugfest::abi::v12::Net net = plugfest::mutants::ld::refusing_net("function_symbol");
  return &net;
}
