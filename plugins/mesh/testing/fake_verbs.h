// A fake libibverbs for tests. A program that links fake_verbs.cc has one NIC, `fake0`, on the loopback interface. It
// connects queue pairs of the process and carries out each transfer when it is posted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mesh::fake {

/// Properties and faults of the NIC. Faults and GIDs can be set at any time, other properties before the plugin's init.
struct Nic {
  std::uint32_t max_message_bytes = 1u << 30;
  std::uint32_t max_inline_bytes = 256;  ///< ibv_create_qp fails if more is requested
  bool active = true;
  /// The RoCE v2 GIDs, as IP addresses, from index 1 on; "" leaves an index unused. Index 0 is RoCE v1.
  std::vector<std::string> gids = {"127.0.0.1"};
  bool lose_acknowledgements = false;  ///< transfers arrive, but do not complete at the sender
  bool lose_packets = false;           ///< transfers do not arrive and fail immediately at the sender
  /// Transfers of the queue pairs with even numbers (0) or odd numbers (1) fail at the sender; -1: none. In a
  /// connection with two lanes these are the transfers of the first or the second lane.
  int failed_pairs = -1;
  bool failed_pairs_deliver = false;  ///< the transfers that fail arrive nevertheless
  bool takes_dma_buf = false;
  bool reads_break_queues = false;  ///< after an RDMA READ its completion queue cannot be polled
  int reads = 0;                    ///< number of RDMA READs so far
  int inline_writes = 0;            ///< number of RDMA WRITEs so far whose data the CPU copied
};
Nic& nic();

/// The GID index of the queue pair that was connected last; -1 if there was none.
int gid_index_of_last_connection();

/// Number of memory regions that were registered so far.
std::size_t registered_regions();

/// Number of open contexts, protection domains, memory regions, completion queues and queue pairs.
std::size_t open_objects();

}  // namespace mesh::fake
