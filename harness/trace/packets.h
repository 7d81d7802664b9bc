// Reads captures of RoCE packets, for reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/report/results.h"

namespace plugfest::trace {

/// The maximum number of packets of a capture that a page shows.
inline constexpr std::size_t kMaxPackets = 400;

/// A comment on a packet, such as a NIC's about its faults. It has the packet's time, on the clock of the
/// capture.
struct PacketComment {
  std::int64_t time_ns = 0;
  std::string from;  ///< address of the packet's sender
  std::string text;
};

/// What a capture has beyond its packets.
struct CaptureDetails {
  std::int64_t first_ns = 0;  ///< time of the first packet, on the clock of the capture
  std::vector<PacketComment> comments;
};

/// Returns the last `most` RoCE packets of a pcapng file, sorted by time. The names of the endpoints are IP addresses;
/// times count from the first packet. A packet that both its sender and its receiver captured appears once. Marks
/// requests whose PSN is not greater than those before (of the same sender, receiver and queue pair), NAKs, and
/// congestion notifications. `details`: may be null.
///
/// The file is untrusted: it may come from PLUGFEST_ROCE_PCAP, `plugfest fabric pcap` or Wireshark on a machine of the
/// same byte order. Link types: Ethernet and raw IP. Other packets and blocks are ignored. Errors: std::runtime_error
/// that names the file and the offset of the error. A file of more than 1 GiB and a time after the year 2043 are
/// errors. Source: draft-ietf-opsawg-pcapng; InfiniBand Architecture Specification vol. 1, chapter 9.
report::Capture read_packets(const std::string& path, std::size_t most, CaptureDetails* details = nullptr);

}  // namespace plugfest::trace
