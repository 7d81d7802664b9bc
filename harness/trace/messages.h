// The messages of queue pairs in a capture of RoCE packets, and where they are in a timeline.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/results.h"
#include "harness/trace/packets.h"

namespace plugfest::trace {

/// A capture of all NICs of a job.
struct CapturedJob {
  report::Capture capture;    ///< with all its packets
  std::int64_t first_ns = 0;  ///< CLOCK_REALTIME of its first packet
  std::vector<PacketComment> comments = {};
  /// The interfaces by address: "a.eth0" of "192.168.100.1".
  std::map<std::string, std::string> interfaces;
};

/// Reads the packets of a file. `interfaces`: see CapturedJob. Errors: as read_packets().
CapturedJob read_job_packets(const std::string& path, std::map<std::string, std::string> interfaces);

/// A SEND or WRITE request: all its packets, and its acknowledgement.
struct Message {
  std::string from, to;                 ///< addresses
  std::string what;                     ///< "WRITE"
  std::uint32_t queue_pair = 0;         ///< the receiver's
  std::uint32_t sender_queue_pair = 0;  ///< 0 until a packet was acknowledged
  std::uint32_t first_psn = 0, last_psn = 0;
  std::uint64_t bytes = 0;
  std::uint32_t packets = 0, retransmissions = 0;
  /// CLOCK_REALTIME. `acknowledged_ns` is 0 if the capture has no acknowledgement.
  std::int64_t start_ns = 0, end_ns = 0, acknowledged_ns = 0;
};

/// The messages whose last packet was captured, by the time of their first packet.
std::vector<Message> messages_of(const CapturedJob& job);

/// What a net plugin reported to have posted to a queue pair: the bytes of one or more consecutive messages. Times:
/// CLOCK_REALTIME, before the first packet and after the last acknowledgement.
struct Work {
  std::string host;
  std::uint32_t queue_pair = 0;  ///< the sender's
  std::uint64_t bytes = 0;
  std::int64_t start_ns = 0, stop_ns = 0;
};

/// For each message the index of the work that sent it, or kNoWork. A queue pair sends in the order of its work.
inline constexpr std::size_t kNoWork = static_cast<std::size_t>(-1);
std::vector<std::size_t> work_of(const CapturedJob& job, const std::vector<Message>& messages,
                                 const std::vector<Work>& works);

/// The host and the interface of an address; the address itself and "" if it is unknown.
std::pair<std::string, std::string> interface_of(const CapturedJob& job, const std::string& address);

}  // namespace plugfest::trace
