// What a NIC has counted.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace plugfest::roce {

/// One count per name, each a std::uint64_t that only grows.
struct Counters {
  std::uint64_t sent_packets = 0;  ///< repetitions included
  std::uint64_t sent_bytes = 0;    ///< UDP payload
  std::uint64_t received_packets = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t placed_packets = 0;  ///< received straight into the memory of their message
  std::uint64_t retransmitted_packets = 0;
  std::uint64_t timeouts = 0;  ///< retransmissions because no acknowledgement came
  std::uint64_t duplicate_requests = 0;
  std::uint64_t out_of_sequence = 0;  ///< requests ahead of the expected one
  std::uint64_t sent_sequence_naks = 0;
  std::uint64_t sent_invalid_request_naks = 0;
  std::uint64_t sent_access_naks = 0;
  std::uint64_t sent_operation_naks = 0;
  std::uint64_t sent_rnr_naks = 0;
  std::uint64_t received_sequence_naks = 0;
  std::uint64_t received_invalid_request_naks = 0;
  std::uint64_t received_access_naks = 0;
  std::uint64_t received_operation_naks = 0;
  std::uint64_t received_rnr_naks = 0;
  std::uint64_t retries_exceeded = 0;      ///< queue pairs that failed because no acknowledgement came
  std::uint64_t rnr_retries_exceeded = 0;  ///< queue pairs that failed because the peer never had a receive
  std::uint64_t icrc_errors = 0;
  std::uint64_t malformed_packets = 0;    ///< wrong version, P_Key, padding or length
  std::uint64_t unknown_queue_pairs = 0;  ///< packets for a queue pair number that nobody has
  std::uint64_t unexpected_packets = 0;   ///< from another address than the peer's, or in a state that takes none
  std::uint64_t dropped_messages = 0;     ///< unreliable ones: incomplete, no receive posted, or not to be placed
  std::uint64_t q_key_violations = 0;     ///< datagrams with another Q_Key than the queue pair's
  std::uint64_t forwarded_packets = 0;    ///< received here for another process of this host
  std::uint64_t forward_drops = 0;        ///< its queue was full
  std::uint64_t buffer_drops = 0;         ///< the socket's receive buffer was full
  std::uint64_t marked_packets = 0;       ///< that a switch has marked for congestion
  std::uint64_t sent_notifications = 0;   ///< CNPs
  std::uint64_t handled_notifications = 0;

  // Faults made on purpose, in both directions.
  std::uint64_t fault_drops = 0;
  std::uint64_t fault_duplicates = 0;
  std::uint64_t fault_reorders = 0;
  std::uint64_t fault_corruptions = 0;
  std::uint64_t delayed_packets = 0;

  bool operator==(const Counters&) const = default;
};

using CounterArray = std::array<std::uint64_t, sizeof(Counters) / sizeof(std::uint64_t)>;

/// Count by count.
inline Counters operator+(const Counters& a, const Counters& b) {
  auto sum = std::bit_cast<CounterArray>(a);
  const auto more = std::bit_cast<CounterArray>(b);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  return std::bit_cast<Counters>(sum);
}
inline Counters operator-(const Counters& a, const Counters& b) {
  auto difference = std::bit_cast<CounterArray>(a);
  const auto less = std::bit_cast<CounterArray>(b);
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= less[i];
  return std::bit_cast<Counters>(difference);
}

}  // namespace plugfest::roce
