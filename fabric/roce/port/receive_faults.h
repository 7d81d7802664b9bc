// Faults of received packets.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "fabric/roce/capture/packet_log.h"
#include "fabric/roce/counters/counters.h"
#include "fabric/roce/faults/delay_queue.h"
#include "fabric/roce/faults/fault_decision.h"
#include "fabric/roce/faults/reorder_buffer.h"
#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/wire/icrc.h"

namespace plugfest::roce {

/// Applies the device's fault plans to received packets, and writes the packets to the capture file.
///
/// Not thread-safe; guarded by the NIC's lock.
class ReceiveFaults {
 public:
  /// Takes one packet: segment `index` of its batch.
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

  /// Gives each packet of a batch to the sink now or later, or drops it, as the fault plans say.
  void handle(const ReceivedBatch& batch, Nanoseconds now);

  /// Gives packets to the sink whose delay has ended.
  void release_due(Nanoseconds now);
  /// When the first delayed packet is due; kNever if there is none.
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
