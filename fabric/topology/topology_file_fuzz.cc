// libFuzzer target: topology files. An invalid file must be refused with a message that names it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "fabric/topology/file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int file = memfd_create("topology", 0);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  try {
    plugfest::topology::read_topology(path);
  } catch (const std::runtime_error& refused) {
    if (std::string(refused.what()).find(path) == std::string::npos) std::abort();
  }
  close(file);
  return 0;
}
