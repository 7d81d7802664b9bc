// Memory into which the kernel may copy payload directly.
#pragma once

#include <cstddef>

namespace plugfest::roce {

/// Memory for the payload of the next packets of a long message, each with a full payload of one path MTU.
struct Placement {
  std::byte* memory = nullptr;  ///< null: no direct placement
  std::size_t packets = 0;
};

}  // namespace plugfest::roce
