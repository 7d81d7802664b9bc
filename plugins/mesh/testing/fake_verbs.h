// A fake libibverbs for tests. A program that links fake_verbs.cc has one NIC, `fake0` with address 127.0.0.1, which
// connects queue pairs of the process and carries out each transfer when it is posted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mesh::fake {

/// Properties and faults of the NIC. Faults can be set at any time, properties before the plugin's init.
struct Nic {
  std::uint32_t max_message_bytes = 1u << 30;
  std::uint32_t max_inline_bytes = 256;  ///< ibv_create_qp fails if more is requested
  bool active = true;
  bool lose_acknowledgements = false;  ///< transfers arrive, but do not complete at the sender
  bool lose_packets = false;           ///< transfers do not arrive and fail immediately at the sender
};
Nic& nic();

/// Number of open contexts, protection domains, memory regions, completion queues and queue pairs.
std::size_t open_objects();

}  // namespace mesh::fake
