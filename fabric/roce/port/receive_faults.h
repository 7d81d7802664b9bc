// Checks the ICRC of received packets, and applies faults to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "fabric/roce/capture/packet_log.h"
#include "fabric/roce/counters/counters.h"
#include "fabric/roce/faults/fault_decision.h"
#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/wire/icrc.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

/// Accepts an ICRC that is right for any IPv4 identification, because a UDP socket does not report the identification.
///
/// Not thread-safe; guarded by the NIC's lock.
class IcrcChecker {
 public:
  /// Checks a packet in three parts: BTH, everything between BTH and ICRC, and ICRC. `index`: number of the
  /// segment in its batch.
  bool is_right(std::span<const std::byte> bth, std::span<const std::byte> rest,
                std::span<const std::byte, kIcrcBytes> icrc, std::size_t index, const Arrival& arrival) {
    const Flow flow = {arrival.source.address, arrival.destination, arrival.source.port, kRoceUdpPort};
    const std::size_t bytes = bth.size() + rest.size() + kIcrcBytes;
    // Segment i of a batch that this project's NIC has sent has identification i, unless the kernel merged batches.
    std::uint32_t expected = start_icrc(flow, static_cast<std::uint16_t>(index), bytes, bth.data(), bth.size());
    expected = crc32(expected, rest.data(), rest.size());
    std::uint32_t received = 0;
    for (std::size_t i = 0; i < kIcrcBytes; ++i) received |= static_cast<std::uint32_t>(icrc[i]) << (8 * i);
    return expected == received ||
           (arrival.destination.is_ipv4() && identifications_.explains(expected ^ received, bytes));
  }

  /// Checks a whole packet, from BTH to ICRC. Also false if a RoCE packet cannot have this length.
  bool is_right(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival) {
    if (packet.size() < kBthBytes + kIcrcBytes || packet.size() % 4 != 0) return false;
    return is_right(packet.first(kBthBytes), packet.subspan(kBthBytes, packet.size() - kBthBytes - kIcrcBytes),
                    packet.last<kIcrcBytes>(), index, arrival);
  }

 private:
  IdentificationSpan identifications_;
};

/// Applies the device's fault plans to received packets, and writes the packets to the capture file.
///
/// Not thread-safe; guarded by the NIC's lock.
class ReceiveFaults {
 public:
  /// Receives one packet: segment `index` of its batch.
  using Sink = std::function<void(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival,
                                  Nanoseconds now)>;

  /// `sink` gets the packets. `arm` is called with the time of the next release_due() call that is needed.
  ReceiveFaults(Counters& counters, std::string_view device, Sink sink, std::function<void(Nanoseconds)> arm)
      : counters_(counters), faults_(device, Direction::kIn), sink_(std::move(sink)), arm_(std::move(arm)) {}

  FaultDecider& faults() { return faults_; }

  /// Sets the capture file; null: none. Packets are captured after faults have been applied.
  void set_log(PacketLog* log) { log_ = log; }

  /// Whether packets must go through handle(). If not, the caller may handle them directly.
  bool active() const { return log_ != nullptr || changes_packets(); }

  /// Gives each packet of a batch to the sink now or later, or drops it, according to the fault plans.
  void handle(const ReceivedBatch& batch, Nanoseconds now);

  /// Gives packets to the sink whose delay has ended.
  void release_due(Nanoseconds now);
  /// Time at which the first delayed packet is due; kNever if none is delayed.
  Nanoseconds due() const { return delayed_.due(); }

 private:
  /// A packet, or the packets of a batch, kept for later.
  struct PacketCopy {
    Arrival arrival;
    std::size_t first_index;
    std::size_t segment_bytes;
    std::vector<std::byte> bytes;
  };

  bool changes_packets() const { return faults_.any() || !delayed_.empty() || !held_.empty(); }
  void deliver_each(const PacketCopy& batch, Nanoseconds now);
  void deliver_with_faults(PacketCopy packet, Nanoseconds now);
  void deliver(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival, Nanoseconds now);
  void log(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival);

  Counters& counters_;
  FaultDecider faults_;
  Sink sink_;
  std::function<void(Nanoseconds)> arm_;
  DelayQueue<PacketCopy> delayed_;
  ReorderBuffer<PacketCopy> held_;
  PacketLog* log_ = nullptr;
  IdentificationSpan identifications_;
};

}  // namespace plugfest::roce
