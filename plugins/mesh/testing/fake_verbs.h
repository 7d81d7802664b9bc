// For tests: verbs within one process, without packets. A program that links fake_verbs.cc has one NIC, `fake0` at
// 127.0.0.1, on which every transfer is carried out the moment it is posted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mesh::fake {

/// What the NIC is and does; set before the plugin's init, or in the middle.
struct Nic {
  std::uint32_t max_message_bytes = 1u << 30;
  std::uint32_t max_inline_bytes = 256;  ///< asking for more fails
  bool active = true;
  bool lose_acknowledgements = false;  ///< transfers arrive, and their sender is not told
  bool lose_packets = false;           ///< nothing arrives: the sender gives up at once
};
Nic& nic();

/// Of all kinds that are open: contexts, domains, regions, completion queues, queue pairs.
std::size_t open_objects();

}  // namespace mesh::fake
