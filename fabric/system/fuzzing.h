// Helps fuzz targets of functions that read files.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fabric/system/file.h"
#include "fabric/system/process.h"

namespace plugfest {

/// Calls `read` with the path of a file in memory that contains the input. Ends the program if `read` throws another
/// exception than std::runtime_error, or an error that does not name the file.
template <typename Read>
void fuzz_file(const std::uint8_t* data, std::size_t size, const Read& read) {
  const Descriptor file = make_memory_file("input");
  if (!write_all(file.get(), {reinterpret_cast<const char*>(data), size})) std::abort();
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  try {
    read(path);
  } catch (const std::runtime_error& refused) {
    if (std::string_view(refused.what()).find(path) == std::string_view::npos) std::abort();
  }
}

}  // namespace plugfest
