// Fuzz target: topology files. An invalid file must be refused with a message that names it.
#include "fabric/system/fuzzing.h"
#include "fabric/topology/file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  plugfest::fuzz_file(data, size, [](const std::string& path) { plugfest::topology::read_topology(path); });
  return 0;
}
