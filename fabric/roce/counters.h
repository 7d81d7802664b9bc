// What a NIC has counted.
#pragma once

#include <atomic>
#include <cstdint>

namespace plugfest::roce {

/// One count per name, all since the NIC was made. `Number` is std::uint64_t in a snapshot.
template <typename Number>
struct BasicCounters {
  Number sent_packets{};
  Number sent_bytes{};  ///< UDP payload
  Number received_packets{};
  Number received_bytes{};
  Number retransmitted_packets{};
  Number timeouts{};  ///< retransmissions because no acknowledgement came
  Number duplicate_requests{};
  Number sent_sequence_naks{};
  Number sent_invalid_request_naks{};
  Number sent_access_naks{};
  Number sent_operation_naks{};
  Number sent_rnr_naks{};
  Number received_sequence_naks{};
  Number received_invalid_request_naks{};
  Number received_access_naks{};
  Number received_operation_naks{};
  Number received_rnr_naks{};
  Number icrc_errors{};
  Number malformed_packets{};    ///< too short, wrong version, P_Key, padding or length
  Number unknown_queue_pairs{};  ///< packets for a queue pair number that nobody has
  Number unexpected_packets{};   ///< from another address than the peer's, or in a state that takes none
  Number forwarded_packets{};    ///< received here for another process of this host
  Number forward_drops{};        ///< its queue was full
  Number faults_injected{};
};

using Counters = BasicCounters<std::uint64_t>;

}  // namespace plugfest::roce
